"""What a person does about each of Kafka's error codes."""

from __future__ import annotations

from typing import Final

from klamm.errors import ErrorCode

_BY_ITSELF: Final = "Nothing: the client tries again. "

REMEDIES: Final = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "Read the server's log at that moment; it has the cause. Report it if it "
    "names a bug.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "Set auto.offset.reset, or seek: retention deleted the records, or the log was "
    "cut. Raise retention.ms or retention.bytes if the group needs more time.",
    ErrorCode.CORRUPT_MESSAGE: _BY_ITSELF + "If it stays, look for a bad network, or damage on the broker's disk "
    "(`klamm log scrub`).",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _BY_ITSELF + "If it stays, the topic does not exist, or the client may "
    "not know of it: `klamm topics list`, `klamm acls check`.",
    ErrorCode.LEADER_NOT_AVAILABLE: _BY_ITSELF + "If it stays, no in-sync replica is alive: start the brokers "
    "that `klamm topics describe` names.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _BY_ITSELF + "The partition has moved to another broker.",
    ErrorCode.REQUEST_TIMED_OUT: "It is unknown whether the request took effect: look, or repeat it if that does "
    "no harm. A server is overloaded, or replicas lag: `klamm doctor`.",
    ErrorCode.REPLICA_NOT_AVAILABLE: _BY_ITSELF + "If it stays, start the broker that has the replica.",
    ErrorCode.MESSAGE_TOO_LARGE: "Send smaller records, or raise max.message.bytes of the topic. A producer with "
    "a large batch.size splits its batches by itself.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "Commit less text beside the offset, or raise offset.metadata.max.bytes.",
    ErrorCode.NETWORK_EXCEPTION: _BY_ITSELF + "If it stays, look at the network and at the server's log.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _BY_ITSELF + "The coordinator reads the group's offsets. If it takes "
    "longer than seconds, a partition of the internal topic has no leader.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _BY_ITSELF + "If it stays, no coordinator runs: `klamm cluster status`.",
    ErrorCode.NOT_COORDINATOR: _BY_ITSELF + "Another coordinator has the group now.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Use another name: letters, digits, `.`, `_` and `-`, at most 249 of them. "
    "Internal topics cannot be written to.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "Send smaller batches, or raise segment.bytes of the topic.",
    ErrorCode.NOT_ENOUGH_REPLICAS: _BY_ITSELF + "Nothing was written. Start the brokers that are missing in the "
    "in-sync set (`klamm topics describe --under-replicated-partitions`).",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _BY_ITSELF + "The records are in the leader's log; an idempotent "
    "producer does not double them. Start the brokers that are missing.",
    ErrorCode.INVALID_REQUIRED_ACKS: "Set acks to all, 1 or 0.",
    ErrorCode.ILLEGAL_GENERATION: "The member joins again by itself. A commit of the old generation is lost: "
    "process and commit again after the rebalance.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "Give all members of the group a common partition.assignment.strategy, "
    "and the same group.protocol.",
    ErrorCode.INVALID_GROUP_ID: "Set group.id to a text that is not empty.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The member joins again by itself. If it happens often, poll more often, or "
    "raise session.timeout.ms or max.poll.interval.ms.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "Set session.timeout.ms between group.min.session.timeout.ms and "
    "group.max.session.timeout.ms of the cluster.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The member joins again by itself. Poll, and commit again afterwards.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "Commit fewer partitions, or less text beside the offset.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Ask for the right: `klamm acls check` tells what is missing, `klamm "
    "acls add` gives it.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Give the user Read on the group: `klamm acls add`.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Give the user the right on the cluster that the operation needs, or "
    "use another user: `klamm acls check`.",
    ErrorCode.INVALID_TIMESTAMP: "Set the record's timestamp within message.timestamp.before.max.ms and "
    "message.timestamp.after.max.ms of the topic; look at the clocks.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "Set sasl.mechanism to one that the listener has (sasl.enabled.mechanisms).",
    ErrorCode.ILLEGAL_SASL_STATE: "The client sent requests before its login was complete: set security.protocol "
    "and sasl.mechanism as the listener wants them.",
    ErrorCode.UNSUPPORTED_VERSION: "Use a newer server or an older client, or leave out what the server does not "
    "know. [Kafka's APIs and versions](kafka-protocol.md) has all that are served.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Choose another name, or pass `--if-not-exists`.",
    ErrorCode.INVALID_PARTITIONS: "Ask for at least one partition, and for more than there are when you add some.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Ask for at most as many replicas as brokers are live, or start more "
    "brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "Name live brokers, none of them twice, and as many for each partition.",
    ErrorCode.INVALID_CONFIG: "The message names the setting, the value and what was expected; [all "
    "settings](settings.md) says more.",
    ErrorCode.NOT_CONTROLLER: _BY_ITSELF + "The request had no effect; another controller is active.",
    ErrorCode.INVALID_REQUEST: "The message says what does not fit. With Klamm's own client or a usual one of "
    "Kafka's, report it.",
    ErrorCode.POLICY_VIOLATION: "The message names the policy of the cluster: stay within it.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "A batch of the producer is missing. Klamm's producer begins a new "
    "epoch; in a transaction, abort it.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "Nothing: the records are in the log already.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "Another producer took over, or the transaction timed out: abort the "
    "transaction; if that fails too, make a new producer.",
    ErrorCode.INVALID_TXN_STATE: "The calls came in an order that does not fit: begin, send, then commit or abort "
    "once.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The transactional id has another producer now: make a new producer.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "Set transaction.timeout.ms to at most transaction.max.timeout.ms.",
    ErrorCode.CONCURRENT_TRANSACTIONS: _BY_ITSELF + "The transaction before is being ended.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "Nothing: another coordinator has the transaction and ends it.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Give the user Write on the transactional id: `klamm acls add`.",
    ErrorCode.SECURITY_DISABLED: "Set authorizer.class.name at every server to have access control lists.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "Mend the part of the request that has another error, then repeat all of it.",
    ErrorCode.KAFKA_STORAGE_ERROR: _BY_ITSELF + "A disk is full, broken or not mounted: `klamm log-dirs "
    "describe`, `klamm doctor`, and the broker's log.",
    ErrorCode.LOG_DIR_NOT_FOUND: "Name a directory of the broker's log.dirs.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "Look at the user's name, the password or the token. The server tells "
    "every cause alike; its audit log has more.",
    ErrorCode.UNKNOWN_PRODUCER_ID: "Klamm's producer begins a new epoch by itself. Raise "
    "producer.id.expiration.ms if producers rest for longer than that.",
    ErrorCode.NON_EMPTY_GROUP: "Stop all members of the group first.",
    ErrorCode.GROUP_ID_NOT_FOUND: "Look at the name: `klamm groups list`. A group is forgotten when its offsets "
    "expire.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: _BY_ITSELF + "It begins a new fetch session.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: _BY_ITSELF + "It begins a new fetch session.",
    ErrorCode.LISTENER_NOT_FOUND: _BY_ITSELF + "If it stays, give every broker a listener of the name that the "
    "client comes in by.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Set delete.topic.enable=true at the controllers.",
    ErrorCode.FENCED_LEADER_EPOCH: _BY_ITSELF + "Its metadata were older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: _BY_ITSELF + "The broker's metadata were older than the client's.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "Set compression.type to none, gzip, snappy, lz4 or zstd.",
    ErrorCode.STALE_BROKER_EPOCH: "Nothing: the broker registers again. Look for two brokers with one id if it stays.",
    ErrorCode.OFFSET_NOT_AVAILABLE: _BY_ITSELF + "A new leader does not know its high watermark yet.",
    ErrorCode.MEMBER_ID_REQUIRED: "Nothing: the member joins again with the id that it was given.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "Start the first broker in the partition's list of replicas.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "Run fewer members, or raise group.max.size.",
    ErrorCode.FENCED_INSTANCE_ID: "Give each member a group.instance.id of its own; stop the one that is there twice.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Start a broker with an eligible replica. If none will come back, "
    "`klamm topics elect-leaders --unclean` loses records and goes on.",
    ErrorCode.ELECTION_NOT_NEEDED: "Nothing: the preferred replica leads already.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "Nothing: the move is complete, or was never begun (`klamm reassign`).",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Stop the members that subscribe to the topic, then delete its offsets.",
    ErrorCode.INVALID_RECORD: "The message names the record and the reason, such as a record without a key in a "
    "compacted topic. The other records of its batch were not written either.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: _BY_ITSELF + "If it stays, a transaction is left open: `klamm transactions "
    "find-hanging`.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: _BY_ITSELF + "Change topics more slowly, or raise the quota: `klamm quotas`.",
    ErrorCode.PRODUCER_FENCED: "Close this producer: a newer one has its transactional.id. Give each running "
    "producer an id of its own.",
    ErrorCode.RESOURCE_NOT_FOUND: "Look at the name: the user, the entry or the setting does not exist.",
    ErrorCode.DUPLICATE_RESOURCE: "Name each thing once in a request.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The message says what does not fit: a password that is empty, or a number "
    "of iterations outside of the range.",
    ErrorCode.INCONSISTENT_VOTER_SET: "Nothing: controllers find the newest set of voters by themselves. If it "
    "stays, compare `klamm cluster quorum` at each of them.",
    ErrorCode.INVALID_UPDATE_VERSION: "Ask for a level that `ApiVersions` names; nothing else can be set.",
    ErrorCode.UNKNOWN_TOPIC_ID: _BY_ITSELF + "The topic was deleted, and maybe created again.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "Give each broker an id of its own; stop the one that is there twice.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "Look at the id: `klamm cluster status`. The broker was never there, or "
    "was removed.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The server has the data of another cluster, or the wrong controllers in "
    "its settings: mend the one or the other.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "Look at the name: `klamm transactions list`. An id is forgotten after "
    "transactional.id.expiration.ms.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: _BY_ITSELF + "It begins a new fetch session.",
    ErrorCode.INELIGIBLE_REPLICA: "Nothing: the leader asks again when the replica's broker is live.",
    ErrorCode.NEW_LEADER_ELECTED: "Nothing: the broker learns of the new leader with its metadata.",
    ErrorCode.FENCED_MEMBER_EPOCH: "The member joins again by itself. What it had not committed is processed again.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Stop the other member with this group.instance.id, or wait for its session "
    "to end.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "Set group.remote.assignor to one of group.consumer.assignors.",
    ErrorCode.STALE_MEMBER_EPOCH: "Poll, then commit again: the member has a newer epoch.",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "Give the program a broker's address where it wants a broker's, a "
    "controller's where it wants a controller's.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "Ask for brokers, or use a newer server.",
    ErrorCode.INVALID_REGISTRATION: "The message says what the server registers that does not fit, such as "
    "directories.",
    ErrorCode.TRANSACTION_ABORTABLE: "Abort the transaction, then begin it again: the same producer goes on.",
    ErrorCode.DUPLICATE_VOTER: "Nothing: the controller votes already (`klamm cluster quorum`).",
    ErrorCode.VOTER_NOT_FOUND: "Look at the id and the directory id: `klamm cluster quorum`.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "Write the expression in RE2's syntax: it has no look-around and no "
    "references back.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "Nothing: another server has the address now, and a Kafka client goes back to its "
    "bootstrap servers.",
}
"""The codes that a server of Klamm sends, or one of its clients raises."""

NOT_SENT: Final = frozenset(ErrorCode) - REMEDIES.keys() - {ErrorCode.NONE}
"""Codes that Kafka sends for features that Klamm does not have, or in calls that Klamm answers in another way."""

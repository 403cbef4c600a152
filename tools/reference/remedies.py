"""What a person does about each of Kafka's error codes."""

from __future__ import annotations

from typing import Final

from klamm.errors import ErrorCode

_BY_ITSELF: Final = "Nothing: the client retries. "

REMEDIES: Final = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "Look for the cause in the server's log at that time. If the log shows a bug,"
    " report it.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "Set auto.offset.reset, or seek. Retention deleted the records, or the log was"
    " truncated. If the group needs more time, raise retention.ms or retention.bytes.",
    ErrorCode.CORRUPT_MESSAGE: _BY_ITSELF
    + "If it persists, look for a bad network, or for damage on the broker's disk (`klamm log scrub`).",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _BY_ITSELF
    + "If it persists, the topic does not exist, or the client has no right to see it: `klamm topics list`, `klamm"
    " acls check`.",
    ErrorCode.LEADER_NOT_AVAILABLE: _BY_ITSELF
    + "If it persists, no in-sync replica is alive. Start the brokers that `klamm topics describe` shows.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _BY_ITSELF + "The partition has moved to another broker.",
    ErrorCode.REQUEST_TIMED_OUT: "The request may have taken effect. Check this, or repeat the request if that does no"
    " harm. A server is overloaded, or replicas lag: `klamm doctor`.",
    ErrorCode.REPLICA_NOT_AVAILABLE: _BY_ITSELF + "If it persists, start the broker that has the replica.",
    ErrorCode.MESSAGE_TOO_LARGE: "Send smaller records, or raise max.message.bytes of the topic. If batch.size is too"
    " large, the producer splits the batches itself.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "Commit shorter metadata with the offset, or raise offset.metadata.max.bytes.",
    ErrorCode.NETWORK_EXCEPTION: _BY_ITSELF + "If it persists, check the network and the server's log.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _BY_ITSELF
    + "The coordinator is loading the group's offsets. If this takes more than a few seconds, a partition of the"
    " internal topic has no leader.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _BY_ITSELF + "If it persists, no coordinator runs: `klamm cluster status`.",
    ErrorCode.NOT_COORDINATOR: _BY_ITSELF + "Another coordinator has the group now.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Use another name: at most 249 letters, digits, `.`, `_` and `-`. Clients"
    " cannot write to internal topics.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "Send smaller batches, or raise segment.bytes of the topic.",
    ErrorCode.NOT_ENOUGH_REPLICAS: _BY_ITSELF
    + "Nothing was written. Start the brokers that are missing from the in-sync set (`klamm topics describe"
    " --under-replicated-partitions`).",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _BY_ITSELF
    + "The records are in the leader's log. An idempotent producer does not write them twice. Start the brokers that"
    " are missing from the in-sync set.",
    ErrorCode.INVALID_REQUIRED_ACKS: "Set acks to all, 1 or 0.",
    ErrorCode.ILLEGAL_GENERATION: "The member rejoins by itself. A commit of the old generation is lost. Process the"
    " records again after the rebalance, and commit.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "Give all members of the group a common partition.assignment.strategy, and"
    " the same group.protocol.",
    ErrorCode.INVALID_GROUP_ID: "Set group.id to a text that is not empty.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The member rejoins by itself. If it happens often, poll more often, or raise"
    " session.timeout.ms or max.poll.interval.ms.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "Set session.timeout.ms to a value between group.min.session.timeout.ms and"
    " group.max.session.timeout.ms of the cluster.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The member rejoins by itself. Poll, and commit again afterwards.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "Commit fewer partitions, or shorter metadata with the offsets. If the"
    " coordinator's log says that the user holds too much memory, delete groups of this user, or raise"
    " group.metadata.max.bytes.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Give the user the missing right: `klamm acls check` shows it, `klamm acls"
    " add` gives it.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Give the user the right Read on the group: `klamm acls add`.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Give the user the right on the cluster that the operation needs, or use"
    " another user: `klamm acls check`.",
    ErrorCode.INVALID_TIMESTAMP: "Set the record's timestamp within message.timestamp.before.max.ms and"
    " message.timestamp.after.max.ms of the topic. Check the clocks.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "Set sasl.mechanism to a mechanism of the listener"
    " (sasl.enabled.mechanisms).",
    ErrorCode.ILLEGAL_SASL_STATE: "The client sent requests before its login was complete. Set security.protocol and"
    " sasl.mechanism to the values of the listener.",
    ErrorCode.UNSUPPORTED_VERSION: "Use a newer server or an older client, or do not use the feature. [Kafka's APIs"
    " and versions](kafka-protocol.md) lists what servers support.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Choose another name, or pass `--if-not-exists`.",
    ErrorCode.INVALID_PARTITIONS: "Request at least one partition. When you add partitions, request more than the"
    " topic has.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Request at most as many replicas as there are live brokers, or start more"
    " brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "Assign only live brokers, each at most once for a partition, and as many to"
    " every partition.",
    ErrorCode.INVALID_CONFIG: "The message names the setting, the value and the expected values. [All"
    " settings](settings.md) explains each setting.",
    ErrorCode.NOT_CONTROLLER: _BY_ITSELF + "The request had no effect; another controller is active.",
    ErrorCode.INVALID_REQUEST: "The message names the invalid part. If the client is Klamm's own or a common Kafka"
    " client, report it.",
    ErrorCode.POLICY_VIOLATION: "The message names the policy of the cluster. Change the request so that it complies.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "A batch of the producer is missing. Klamm's producer starts a new epoch."
    " In a transaction, abort the transaction.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "Nothing: the records are in the log already.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "A newer producer has the same id, or the transaction timed out. Abort the"
    " transaction. If that fails too, create a new producer.",
    ErrorCode.INVALID_TXN_STATE: "The calls were in the wrong order. Begin, send, then commit or abort once.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "Another producer has the transactional id now. Create a new producer.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "Set transaction.timeout.ms to at most transaction.max.timeout.ms.",
    ErrorCode.CONCURRENT_TRANSACTIONS: _BY_ITSELF + "The previous transaction is still completing.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "Nothing: another coordinator has taken over the transaction and"
    " completes it.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Give the user the right Write on the transactional id: `klamm"
    " acls add`.",
    ErrorCode.SECURITY_DISABLED: "To use access control lists, set authorizer.class.name at every server.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "Correct the part of the request that has another error, then repeat the whole"
    " request.",
    ErrorCode.KAFKA_STORAGE_ERROR: _BY_ITSELF + "A disk is full, broken or not mounted: `klamm log-dirs describe`,"
    " `klamm doctor`, and the broker's log.",
    ErrorCode.LOG_DIR_NOT_FOUND: "Use a directory in the broker's log.dirs.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "Check the user's name, the password or the token. The server does not tell"
    " clients the cause. Its audit log shows more.",
    ErrorCode.UNKNOWN_PRODUCER_ID: "Klamm's producer starts a new epoch by itself. If producers are idle for longer"
    " than producer.id.expiration.ms, raise this setting.",
    ErrorCode.NON_EMPTY_GROUP: "Stop all members of the group first.",
    ErrorCode.GROUP_ID_NOT_FOUND: "Check the name: `klamm groups list`. The cluster forgets a group when its offsets"
    " expire.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: _BY_ITSELF + "It starts a new fetch session.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: _BY_ITSELF + "It starts a new fetch session.",
    ErrorCode.LISTENER_NOT_FOUND: _BY_ITSELF
    + "If it persists, give every broker a listener with the name of the listener to which the client connects.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Set delete.topic.enable=true at the controllers.",
    ErrorCode.FENCED_LEADER_EPOCH: _BY_ITSELF + "Its metadata was older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: _BY_ITSELF + "The broker's metadata was older than the client's.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "Set compression.type to none, gzip, snappy, lz4 or zstd.",
    ErrorCode.STALE_BROKER_EPOCH: "Nothing: the broker registers again. If it persists, look for two brokers with the"
    " same id.",
    ErrorCode.OFFSET_NOT_AVAILABLE: _BY_ITSELF + "A new leader does not know its high watermark yet.",
    ErrorCode.MEMBER_ID_REQUIRED: "Nothing: the member joins again with the id that the coordinator has given to it.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "Start the broker that is the first in the partition's list of replicas.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "Run fewer members, or raise group.max.size. If the coordinator's log says that"
    " the user holds too much memory, delete groups of this user, or raise group.metadata.max.bytes.",
    ErrorCode.FENCED_INSTANCE_ID: "Give each member its own group.instance.id. Stop the member that uses this id a"
    " second time.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Start a broker with an eligible replica. If none can come back, run"
    " `klamm topics elect-leaders --unclean`, which loses records.",
    ErrorCode.ELECTION_NOT_NEEDED: "Nothing: the preferred replica leads already.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "Nothing: the move is complete, or has never started (`klamm reassign`).",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Stop the members that subscribe to the topic, then delete its offsets.",
    ErrorCode.INVALID_RECORD: "The message names the record and the reason, for example a record without a key in a"
    " compacted topic, or one above max.decompressed.message.bytes. The other records of its batch were not"
    " written either.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: _BY_ITSELF
    + "If it persists, a transaction has stayed open: `klamm transactions find-hanging`.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: _BY_ITSELF
    + "Create, delete and change topics more slowly, or raise the quota: `klamm quotas`.",
    ErrorCode.PRODUCER_FENCED: "Close this producer. A newer producer has its transactional.id. Give each running"
    " producer its own id.",
    ErrorCode.RESOURCE_NOT_FOUND: "Check the name. The user, the entry or the setting does not exist.",
    ErrorCode.DUPLICATE_RESOURCE: "Name each resource once in a request.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The message names the reason: an empty password, or a number of iterations"
    " outside of the range.",
    ErrorCode.INCONSISTENT_VOTER_SET: "Nothing: controllers find the newest set of voters by themselves. If it"
    " persists, compare `klamm cluster quorum` at each controller.",
    ErrorCode.INVALID_UPDATE_VERSION: "Use a level that `ApiVersions` lists. No other level can be set.",
    ErrorCode.UNKNOWN_TOPIC_ID: _BY_ITSELF + "The topic was deleted, and may have been created again.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "Give each broker its own id. Stop the broker that uses this id a second"
    " time.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "Check the id: `klamm cluster status`. The broker has never registered, or it"
    " was removed.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The server has the data of another cluster, or its settings name the wrong"
    " controllers. Correct one of them.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "Check the name: `klamm transactions list`. The cluster forgets an id after"
    " transactional.id.expiration.ms.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: _BY_ITSELF + "It starts a new fetch session.",
    ErrorCode.INELIGIBLE_REPLICA: "Nothing: the leader retries when the replica's broker is live.",
    ErrorCode.NEW_LEADER_ELECTED: "Nothing: the broker receives the new leader with its metadata.",
    ErrorCode.FENCED_MEMBER_EPOCH: "The member rejoins by itself. Records that it had not committed are processed"
    " again.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Stop the other member with this group.instance.id, or wait until its session"
    " ends.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "Set group.remote.assignor to one of group.consumer.assignors.",
    ErrorCode.STALE_MEMBER_EPOCH: "Poll, then commit again: the member has a newer epoch.",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "Use a broker's address where the program expects brokers, and a controller's"
    " address where it expects controllers.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "Request brokers, or use a newer server.",
    ErrorCode.INVALID_REGISTRATION: "The message names the invalid part of the server's registration, for example its"
    " directories.",
    ErrorCode.TRANSACTION_ABORTABLE: "Abort the transaction, then start it again with the same producer. If the"
    " coordinator's log says that the user holds too much memory, use fewer partitions in a transaction, or raise"
    " transactional.id.metadata.max.bytes.",
    ErrorCode.DUPLICATE_VOTER: "Nothing: the controller is already a voter (`klamm cluster quorum`).",
    ErrorCode.VOTER_NOT_FOUND: "Check the id and the directory id: `klamm cluster quorum`.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "Write the expression in RE2's syntax, which has no look-around and no"
    " backreferences. A group may have ten expressions, each of 2,000 instructions of RE2.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "Nothing: the address now belongs to another server, and a Kafka client goes back"
    " to its bootstrap servers.",
}
"""The codes that a server of Klamm sends, or one of its clients raises."""

NOT_SENT: Final = frozenset(ErrorCode) - REMEDIES.keys() - {ErrorCode.NONE}
"""Codes that Kafka sends for features that Klamm does not have, or in calls that Klamm answers in another way."""

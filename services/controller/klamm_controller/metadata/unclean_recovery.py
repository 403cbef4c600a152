"""Unclean recovery elects the most complete log when every in-sync replica may have lost records (KIP-966).

A broker that stops uncleanly may have lost the tail of its log, so its replicas are neither in sync nor eligible any
more. When this has happened to every replica that had all records, one of them may still have them. Usually only the
process dies, and the records that it wrote to the operating system survive. The logs show which replica has the most.
Kafka 4.4 elects the last leader instead, even if its log is empty.

In KIP-966 the controller asks the brokers (GetReplicaLogInfo). In Klamm the brokers report where each log without a
leader ends, again and again. Brokers call controllers and never the other way round, so a controller needs no address,
identity or rights at a broker. `unclean.recovery.strategy` says which reports the controller waits for:

- *Balanced*: those of every replica that was in sync or eligible until it may have lost records (`last_known_elr`), and
  of every other replica whose broker is alive. Records that any of them has survive.
- *Aggressive*: those of the replicas whose brokers are alive. `unclean.leader.election.enable` means the same.
- *None*: none. The partition waits for an administrator.

The controller does not wait for a broker that an administrator unregistered, because this broker will not come back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from klamm.wire.v1.controller_pb2 import ReplicaLogEnd, ReportReplicaLogsRequest, ReportReplicaLogsResponse
from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.electorate import Electorate, RecoveryStrategy
from klamm_controller.metadata.partition_change import partition_change
from klamm_controller.metadata.registered import UUID_BYTES, registered_broker
from klamm_controller.metadata.replica_logs import ReplicaLog, ReplicaLogs, most_complete
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT
from klamm_server.metadata.entities import NO_LEADER, PartitionImage, TopicImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.partition_index import PartitionKey


def replica_logs_parts(request: ReportReplicaLogsRequest) -> list[ReportReplicaLogsRequest]:
    """Splits a big request into several, so that the queue handles each in a separate turn."""
    return [
        ReportReplicaLogsRequest(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            logs=request.logs[start : start + CHANGES_PER_EVENT],
        )
        for start in range(0, max(1, len(request.logs)), CHANGES_PER_EVENT)
    ]


def handle_replica_logs(
    request: ReportReplicaLogsRequest, image: MetadataImage, logs: ReplicaLogs
) -> Decision[ReportReplicaLogsResponse]:
    """Keeps the reports, and elects a leader for each partition with enough of them.

    Answers STALE_BROKER_EPOCH or BROKER_ID_NOT_REGISTERED to a broker that is not registered with the request's broker
    epoch."""
    try:
        broker = registered_broker(image, request.broker_id, request.broker_epoch)
    except Refusal as refusal:
        return Decision(reply=ReportReplicaLogsResponse(error_code=refusal.code, error_message=refusal.message))
    logs.prune(image)
    electorate = Electorate(image)
    records: dict[PartitionKey, MetadataRecord] = {}
    for key, topic, partition, end in _leaderless(request, image):
        if broker.broker_id in partition.replicas:
            report = ReplicaLog(broker.broker_epoch, end.leader_epoch, end.last_epoch, end.log_end_offset)
            logs.note(key, broker.broker_id, report)
        leader = recovered_leader(topic, partition, electorate, logs.current(key, partition, image))
        if leader != NO_LEADER:
            record = partition_change(topic, partition, electorate, unclean_leader=leader)
            assert record is not None, partition
            records[key] = record
    return Decision(records=tuple(records.values()), reply=ReportReplicaLogsResponse())


def recovered_leader(
    topic: TopicImage, partition: PartitionImage, electorate: Electorate, logs: dict[int, ReplicaLog]
) -> int:
    """Returns the replica with the most complete log, or -1 while reports of other replicas are missing."""
    live = electorate.live_replicas(partition)
    # A replica that resigned because its disk is full may have no log to report.
    able = live - frozenset(partition.resigned_replicas)
    strategy = electorate.recovery_strategy(topic.name)
    if strategy is RecoveryStrategy.NONE:
        return NO_LEADER
    if strategy is RecoveryStrategy.AGGRESSIVE:
        if not able <= logs.keys():
            return NO_LEADER
        return most_complete(partition, electorate, {one: log for one, log in logs.items() if one in live})
    if partition.isr or partition.elr:
        return NO_LEADER
    awaited = frozenset(one for one in partition.last_known_elr if electorate.is_registered(one))
    if not awaited or not awaited | able <= logs.keys():
        return NO_LEADER
    leader = most_complete(partition, electorate, logs)
    return leader if leader in live else NO_LEADER


def _leaderless(
    request: ReportReplicaLogsRequest, image: MetadataImage
) -> Iterator[tuple[PartitionKey, TopicImage, PartitionImage, ReplicaLogEnd]]:
    """Yields the reported partitions that exist and have no leader."""
    for end in request.logs:
        topic = image.topics_by_id.get(uuid.UUID(bytes=end.topic_id)) if len(end.topic_id) == UUID_BYTES else None
        if topic is None or not 0 <= end.partition < len(topic.partitions):
            continue
        partition = topic.partitions[end.partition]
        if partition.leader == NO_LEADER:
            yield (topic.topic_id, end.partition), topic, partition, end

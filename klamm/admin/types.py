"""What an Admin takes and gives: plain values with Kafka's names.

Enum numbers are Kafka's (`ConfigResource.Type`, `AlterConfigOp.OpType`, `ConfigEntry.ConfigSource`).
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from klamm.ledger_ids import LedgerId
from klamm.model import TopicPartition


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partition_count: int = -1
    """-1: num.partitions of the cluster, or as many as `assignments` has."""
    replication_factor: int = -1
    """-1: default.replication.factor of the cluster, or what `assignments` says."""
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Partition number to broker ids, the preferred leader first; empty: the controller places them."""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic as it was created (or would be)."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    partition: int
    leader: int
    """Broker id, or -1."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    """The preferred leader first."""
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Out of sync, with every acknowledged record nevertheless (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """The last leader, when there is none."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    """Those that cannot be reached."""
    resigned_replicas: tuple[int, ...] = ()
    """Those whose brokers do not want them to lead or be in sync while others can: a full disk, a damaged log."""
    min_isr: int = 0
    """How many must be in sync to take records with acks=all; 0: an older controller does not say."""

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas when the reassignment under way is complete."""
        return tuple(each for each in self.replicas if each not in self.removing_replicas)

    @property
    def is_under_replicated(self) -> bool:
        """Whether fewer are in sync than there should be; what a reassignment adds does not count."""
        return len(self.isr) < len(self.replicas) - len(self.adding_replicas)

    @property
    def refusal(self) -> str:
        """Why it takes no records with acks=all, or empty: it does."""
        if self.leader < 0:
            return "no leader"
        if self.leader in self.resigned_replicas:
            return "the leader has resigned"
        return "below min.insync.replicas" if len(self.isr) < self.min_isr else ""


class ElectionType(enum.IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    """The first replica, if it is in sync."""
    UNCLEAN = 1
    """For partitions without a leader: anybody, even if acknowledged records are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """One that is under way; complete when all replicas that stay are in sync."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: uuid.UUID
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    """By partition number."""


class ConfigResourceType(enum.IntEnum):
    TOPIC = 2
    BROKER = 4


class ConfigResource(NamedTuple):
    """A thing with configs."""

    type: ConfigResourceType
    name: str
    """A topic's name, a broker's id as text, or empty for the default of all brokers."""


class ConfigSource(enum.IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str
    """Empty when `sensitive`."""
    source: ConfigSource
    default_value: str
    read_only: bool
    sensitive: bool
    type: str
    """BOOLEAN, STRING, INT, LONG, DOUBLE or LIST."""
    documentation: str
    """Empty unless asked for."""


class ConfigOperation(enum.IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of one config; `value` is unused for DELETE."""

    name: str
    value: str = ""
    operation: ConfigOperation = ConfigOperation.SET


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDescription:
    """A controller, broker or coordinator."""

    node_id: int
    host: str
    port: int
    rack: str
    fenced: bool
    in_controlled_shutdown: bool = False
    """Of a broker: it is about to stop, and hands its leaders over."""
    kafka_host: str = ""
    kafka_port: int = 0
    """Of a broker: where Kafka clients reach it; port 0: nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    """The active controller, or -1."""
    controllers: tuple[ServerDescription, ...]
    brokers: tuple[ServerDescription, ...]
    """Every registered one, also fenced ones."""
    coordinators: tuple[ServerDescription, ...]
    metadata_end_index: int


class QuorumReplicaKind(enum.IntEnum):
    """What follows the controllers' log. Only controllers can vote."""

    CONTROLLER = 0
    BROKER = 1
    COORDINATOR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOfQuorum:
    """A controller, or a server that follows them, as the leader of their quorum sees it."""

    node_id: int
    host: str
    port: int
    is_voter: bool
    end_index: int
    """The end of its log, as far as the leader knows; of a broker or coordinator, of the records it has replayed."""
    lag: int
    """Entries (or records) that it does not have yet."""
    silent_ms: int
    """How long ago the leader heard of it."""
    kind: QuorumReplicaKind = QuorumReplicaKind.CONTROLLER
    directory_id: str = ""
    """Of a controller: the id of its metadata log, which names the voter together with `node_id` (KIP-853)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """Indexes count the entries of the controllers' log, not the records of the metadata."""

    leader_id: int
    term: int
    high_watermark: int
    replicas: tuple[ReplicaOfQuorum, ...]
    """The voters by id, then the observers: controllers, brokers, coordinators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    group_id: str
    protocol_type: str
    """`consumer`, or empty for a group that only stores offsets."""
    state: str
    """Empty, PreparingRebalance, CompletingRebalance, Stable or Dead; of the new protocol Empty, Assigning, Reconciling
    or Stable."""
    type: str
    """`classic`, or `consumer` for the new protocol (KIP-848)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    """What it subscribes to, as far as it speaks the consumer protocol."""
    assignment: tuple[TopicPartition, ...]
    epoch: int = -1
    """In the new protocol: how far it has come."""
    pattern: str = ""
    """In the new protocol: the expression it subscribes with, or empty."""
    target: tuple[TopicPartition, ...] = ()
    """In the new protocol: what it is to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    assignor: str
    """The one in force, or empty."""
    generation_id: int
    leader: str
    """The member that computes assignments, or empty."""
    coordinator_id: int
    members: tuple[MemberDescription, ...]
    type: str = "classic"
    """Or `consumer` for the new protocol (KIP-848), which has no generations and no leader, but epochs."""
    group_epoch: int = -1
    """In the new protocol: grows with every change of members, subscriptions or topics."""
    assignment_epoch: int = -1
    """In the new protocol: the group epoch that the coordinator last made assignments for."""


class TopicPartitionReplica(NamedTuple):
    """A partition's replica on one broker."""

    topic: str
    partition: int
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDescription:
    tp: TopicPartition
    size_bytes: int
    log_start_offset: int
    log_end_offset: int
    is_future: bool
    """Being copied from another log directory of the broker, whose replica it is to replace (KIP-113)."""
    offset_lag: int
    """Of a future one: how many offsets it is behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    path: str
    online: bool
    total_bytes: int
    """Of its file system."""
    usable_bytes: int
    """What is free of that."""
    replicas: tuple[ReplicaDescription, ...]


class DamageState(enum.Enum):
    """What became of a damaged segment."""

    UNREPAIRED = "unrepaired"
    REPAIRED = "repaired"
    DISMISSED = "dismissed"
    """Another replica has the same bytes: it was no damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSegment:
    path: str
    """The path of its .log file on the broker's machine."""
    found_ms: int
    """In ms since the epoch."""
    state: DamageState
    text: str
    """Why it is not repaired, or how it was."""
    lines: tuple[str, ...]
    """What is damaged: one for each range of bytes and each index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubDescription:
    """How far the closed segments of a replica were read to see whether they are damaged."""

    tp: TopicPartition
    asked: bool
    """A pass that `scrub_logs` asked for has not ended yet."""
    running: bool
    next_offset: int
    """The pass under way has been through all before; -1: none is under way."""
    end_offset: int
    """Where the pass under way ends; -1: none is."""
    finished_ms: int
    """When the last complete pass ended, in ms since the epoch; -1: none has."""
    damages: tuple[DamagedSegment, ...]
    """All that are not repaired, and the last ones that were."""

    @property
    def unrepaired(self) -> tuple[DamagedSegment, ...]:
        return tuple(one for one in self.damages if one.state is DamageState.UNREPAIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str
    """Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    start_time_ms: int
    """When the open transaction began, in ms since the epoch; -1: none is open."""
    partitions: tuple[TopicPartition, ...]
    """Where it may have written."""
    prepared_ms: int = 0
    """When the open transaction was prepared, in ms since the epoch; 0: it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPart:
    """An open transaction of a batch ledger."""

    transactional_id: str
    prepared_ms: int
    """In ms since the epoch; -1: it is not prepared, and its transaction.timeout.ms ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerListing:
    """A batch ledger."""

    ledger: LedgerId
    run_id: str
    """The run that may decide."""
    committed_batch_id: int
    """The last one that counts; -1: none does."""
    last_update_ms: int
    open_parts: tuple[OpenPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """What a partition's leader remembers of a producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    """Of its last marker; -1: there was none."""
    current_txn_start_offset: int
    """-1: no transaction is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """Open in a partition, and unknown to any coordinator: nobody will end it, and nothing after it is stable."""

    tp: TopicPartition
    producer: ProducerState

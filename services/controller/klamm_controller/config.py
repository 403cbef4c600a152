"""The controller's configuration: Kafka's names where Kafka has the setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from klamm.errors import ConfigError
from klamm.model import AUDIT_TOPIC, GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from klamm.setting import Setting, again, boolean, integer, long, text, text_list
from klamm_controller.metadata.policy import InternalTopicPolicy, TopicPolicy
from klamm_controller.raft.messages import ANY_DIRECTORY, ReplicaKey, Voter
from klamm_controller.raft.settings import RaftSettings
from klamm_server.config.broker_configs import BROKER_CONFIGS, BrokerConfig
from klamm_server.config.kafka_listeners import Role
from klamm_server.config.member_config import MemberConfig
from klamm_server.config.server_config import ServiceConfig, parse_server

MIB = 1 << 20
QUORUM_SIZES = (1, 3, 5)
_RAFT = RaftSettings()
_BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"


AUDIT_PARTITIONS: Final = 3
"""The number of partitions of the audit's topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig(ServiceConfig):
    """Settings of one controller process."""

    DEFAULT_PORT: ClassVar[int] = 9093
    OF_BROKERS: ClassVar[Mapping[str, Setting]] = BROKER_CONFIGS
    ROLE: ClassVar[Role] = Role.CONTROLLER

    listeners: tuple[str, ...] = again(
        ServiceConfig,
        "listeners",
        default=(f"GRPC://localhost:{DEFAULT_PORT}",),
        documentation="Where the controller listens, as NAME://host:port; an empty host is every interface.",
    )
    metadata_log_dir: str = text("klamm-data/controller", doc="The directory of the metadata log and its snapshots.")
    cluster_id: str = text(
        "", doc="The cluster this controller must belong to; empty: the one its directory says, or a new one."
    )
    controller_quorum_voters: tuple[str, ...] = text_list(
        (),
        doc="The controllers that begin the quorum, as id@host:port, one, three or five of them, the same"
        " list for all; empty: this one alone. Once the log has begun it names the voters, and these are"
        " only asked for the leader.",
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = again(
        MemberConfig,
        "controller.quorum.bootstrap.servers",
        default=(),
        documentation="Controllers of an existing quorum that this one joins, as host:port; without"
        " controller.quorum.voters. It follows until it is added with klamm cluster add-controller.",
    )
    controller_quota_window_num: int = integer(
        11, at_least=1, doc="How many windows' worth of controller_mutation_rate may be used at once."
    )
    controller_quota_window_size_seconds: int = integer(1, at_least=1, doc="How long each of these windows is.")
    # Kafka's is 1,000, and grows to twice that: this one too, but from less.
    election_timeout_ms: int = integer(
        _RAFT.election_timeout_ms,
        at_least=1,
        name="controller.quorum.election.timeout.ms",
        doc="A controller that hears no leader for this long, up to twice as long, stands for election; a"
        " leader that hears no majority for this long resigns.",
    )
    election_timeout_max_ms: int = integer(
        _RAFT.election_timeout_max_ms,
        at_least=1,
        name="controller.quorum.election.timeout.max.ms",
        doc="What controller.quorum.election.timeout.ms may grow to: it doubles when a controller that was"
        " taken for dead is alive, as on a machine that is too busy, and halves after 30 s without that.",
    )
    quorum_heartbeat_interval_ms: int = integer(
        _RAFT.heartbeat_interval_ms,
        at_least=1,
        name="controller.quorum.heartbeat.interval.ms",
        doc="How often a leader speaks to the other controllers when it has nothing to say.",
    )
    max_idle_interval_ms: int = integer(
        _RAFT.idle_no_op_interval_ms,
        at_least=0,
        name="metadata.max.idle.interval.ms",
        doc="How often the active controller of a quorum of several appends an empty entry when there is"
        " nothing else; 0: never.",
    )
    snapshot_interval_bytes: int = long(
        2 * MIB,  # Kafka's 20 MiB would take seconds to replay in Python at the next start
        at_least=1,
        name="metadata.log.max.record.bytes.between.snapshots",
        doc="After this many bytes of records, or as many as the last snapshot has if those are more, the"
        " metadata is written as a snapshot and the log is cut behind it.",
    )
    tail_max_bytes: int = integer(
        4 * MIB,
        at_least=1,
        name="metadata.log.tail.max.bytes",
        doc="Records kept in memory for servers that follow the metadata; one that falls further behind gets"
        " a snapshot.",
    )
    queue_capacity: int = integer(
        1_000,
        at_least=1,
        name="controller.queue.max.events",
        doc="Requests that wait for their turn; one more is refused.",
    )
    request_timeout_ms: int = integer(
        30_000, at_least=1, doc="How long a request that names no time-out waits to be committed."
    )
    partitions_per_request_max: int = integer(
        10_000,  # Kafka's own bound (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH)
        at_least=1,
        name="controller.partitions.per.request.max",
        doc="Partitions that one request may create.",
    )
    broker_heartbeat_interval_ms: int = again(MemberConfig, "broker.heartbeat.interval.ms")
    broker_session_timeout_ms: int = again(MemberConfig, "broker.session.timeout.ms")
    connection_loss_timeout_ms: int = integer(
        500,
        at_least=1,
        doc="A server whose connection to the controller ended, as when its process dies, is fenced when"
        " nothing is heard of it for this long.",
    )
    coordinator_session_timeout_ms: int = integer(
        9_000,
        at_least=1,
        doc="A coordinator that the controller has not heard of for this long is fenced, and loses its shards.",
    )
    auto_leader_rebalance_enable: bool = boolean(
        True, doc="Whether brokers get back, now and then, the partitions whose preferred leader they are."
    )
    leader_imbalance_check_interval_seconds: int = long(300, at_least=1, doc="How often that is looked after.")
    leader_imbalance_per_broker_percentage: int = integer(
        10,
        at_least=0,
        doc="How many percent of these partitions a broker may fail to lead without that anything is done.",
    )
    num_partitions: int = again(BrokerConfig, "num.partitions", read_by="")
    default_replication_factor: int = again(BrokerConfig, "default.replication.factor", read_by="")
    delete_topic_enable: bool = again(BrokerConfig, "delete.topic.enable", read_by="")
    offsets_topic_num_partitions: int = again(BrokerConfig, "offsets.topic.num.partitions")
    # Kafka's default is 3, with which a single broker could not create the topic. `klamm up` sets what fits.
    offsets_topic_replication_factor: int = again(
        BrokerConfig, "offsets.topic.replication.factor", default=1, read_by=""
    )
    transaction_topic_num_partitions: int = integer(
        50,
        at_least=1,
        name="transaction.state.log.num.partitions",
        doc="Shards of the transactional ids; must not change once __transaction_state exists.",
    )
    transaction_topic_replication_factor: int = integer(
        1,  # as for offsets.topic.replication.factor
        at_least=1,
        at_most=32_767,
        name="transaction.state.log.replication.factor",
        doc="Replicas of __transaction_state; it cannot be created while fewer brokers are alive.",
    )

    def validate(self) -> None:
        ServiceConfig.validate(self)
        if self.broker_session_timeout_ms < 2 * self.broker_heartbeat_interval_ms:
            raise ConfigError(
                f"broker.session.timeout.ms={self.broker_session_timeout_ms} must be at least twice"
                f" broker.heartbeat.interval.ms={self.broker_heartbeat_interval_ms}:"
                " one lost heartbeat would fence a broker"
            )
        self._validate_quorum()
        self.raft_settings().validate()

    def _validate_quorum(self) -> None:
        voters = self.listed_voters()
        ids = sorted(voter.key.node_id for voter in voters)
        if self.controller_quorum_bootstrap_servers:
            self._validate_bootstrap_servers()
        if not voters:
            return
        if self.node_id not in ids:
            raise ConfigError(f"controller.quorum.voters names controllers {ids}, but node.id is {self.node_id}")
        if len(set(ids)) < len(ids):
            raise ConfigError(f"controller.quorum.voters names controllers {ids}: each may be named once")
        if len(ids) not in QUORUM_SIZES:
            raise ConfigError(
                f"controller.quorum.voters names {len(ids)} controllers, expected 1, 3 or 5:"
                " an even number bears no more failures than one less"
            )
        if len(ids) > 1 and not self.cluster_id:
            raise ConfigError(
                "cluster.id must be set, the same for all, when controller.quorum.voters names several controllers"
            )

    def _validate_bootstrap_servers(self) -> None:
        self.contacts()
        if not self.joins_a_quorum:
            return
        if self.controller_quorum_voters:
            raise ConfigError(
                "controller.quorum.voters and controller.quorum.bootstrap.servers are both set: the first begins a"
                " quorum, the second joins one"
            )
        if not self.cluster_id:
            raise ConfigError(
                "cluster.id must be set, that of the quorum to join, with controller.quorum.bootstrap.servers"
            )

    @property
    def joins_a_quorum(self) -> bool:
        """True if `controller.quorum.bootstrap.servers` names another server than this one. The files that Kafka comes
        with name the only controller there, which begins its quorum alone."""
        listeners = self.resolved_listeners()
        name = listeners.between_servers.name
        own = {one.address for one in (*listeners.bound, *listeners.advertised) if one.name == name}
        servers = (parse_server(_BOOTSTRAP, text) for text in self.controller_quorum_bootstrap_servers)
        return any(server not in own for server in servers)

    def listed_voters(self) -> list[Voter]:
        """The controllers that begin the quorum, their directories unknown; empty: this one alone, or it joins one."""
        return [parse_voter(text) for text in self.controller_quorum_voters]

    def contacts(self) -> list[str]:
        """Other controllers to ask, as host:port. Raises ConfigError."""
        servers = [parse_server(_BOOTSTRAP, text) for text in self.controller_quorum_bootstrap_servers]
        listed = [voter.endpoint for voter in self.listed_voters() if voter.key.node_id != self.node_id]
        return [*listed, *(f"{host}:{port}" for host, port in servers if self.joins_a_quorum)]

    def own_address(self, host: str, port: int) -> str:
        """Where the others reach this one: as it is listed, or else at its advertised `host` and `port`."""
        listed = (voter.endpoint for voter in self.listed_voters() if voter.key.node_id == self.node_id)
        return next(listed, f"{host}:{port}")

    def raft_settings(self) -> RaftSettings:
        """The settings of the quorum."""
        return RaftSettings(
            election_timeout_ms=self.election_timeout_ms,
            election_timeout_max_ms=self.election_timeout_max_ms,
            heartbeat_interval_ms=self.quorum_heartbeat_interval_ms,
            idle_no_op_interval_ms=self.max_idle_interval_ms,
            observer_timeout_ms=max(_RAFT.observer_timeout_ms, 2 * self.election_timeout_ms),
        )

    @property
    def data_path(self) -> Path:
        """metadata.log.dir as a path."""
        return Path(self.metadata_log_dir)

    def topic_policy(self) -> TopicPolicy:
        """The settings about topics that are created."""
        return TopicPolicy(
            num_partitions=self.num_partitions,
            default_replication_factor=self.default_replication_factor,
            partitions_per_request_max=self.partitions_per_request_max,
            delete_topic_enable=self.delete_topic_enable,
            internal_topics={
                GROUP_METADATA_TOPIC: InternalTopicPolicy(
                    partition_count=self.offsets_topic_num_partitions,
                    replication_factor=self.offsets_topic_replication_factor,
                ),
                TRANSACTION_STATE_TOPIC: InternalTopicPolicy(
                    partition_count=self.transaction_topic_num_partitions,
                    replication_factor=self.transaction_topic_replication_factor,
                ),
                AUDIT_TOPIC: InternalTopicPolicy(
                    partition_count=AUDIT_PARTITIONS, replication_factor=self.offsets_topic_replication_factor
                ),
            },
        )


def parse_voter(text: str) -> Voter:
    """A controller of the quorum, from `id@host:port`. Raises ConfigError."""
    node_id, separator, server = text.partition("@")
    if not separator or not (node_id.isascii() and node_id.isdecimal()):
        raise ConfigError(f"controller.quorum.voters: {text!r} is not valid, expected id@host:port")
    host, port = parse_server("controller.quorum.voters", server)
    return Voter(ReplicaKey(int(node_id), ANY_DIRECTORY), f"{host}:{port}")

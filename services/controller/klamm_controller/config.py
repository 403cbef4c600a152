"""The controller's configuration. A setting that Kafka also has is named as in Kafka."""

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
"""The number of partitions with which the audit log's topic is created."""


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
        documentation="The addresses where the controller listens, as NAME://host:port. An empty host is every"
        " interface.",
    )
    metadata_log_dir: str = text("klamm-data/controller", doc="The directory of the metadata log and its snapshots.")
    cluster_id: str = text(
        "",
        doc="The id of the cluster to which this controller must belong. Empty: the id in its directory, or a new one.",
    )
    controller_quorum_voters: tuple[str, ...] = text_list(
        (),
        doc="The controllers that begin a new quorum, as id@host:port. List one, three or five, the"
        " same at each of them. Empty: this controller alone. Once the metadata log exists, it"
        " names the voters, and a controller only asks the listed ones for the leader.",
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = again(
        MemberConfig,
        "controller.quorum.bootstrap.servers",
        default=(),
        documentation="The controllers of an existing quorum that this controller joins, as host:port. Do not set"
        " controller.quorum.voters with it. The controller only follows until `klamm cluster"
        " add-controller` makes it a voter.",
    )
    controller_quota_window_num: int = integer(
        11, at_least=1, doc="The number of windows whose share of controller_mutation_rate a client may use at once."
    )
    controller_quota_window_size_seconds: int = integer(
        1, at_least=1, doc="The length of each window of controller.quota.window.num."
    )
    # Kafka's default is 1,000. In both, the timeout of one election is random, up to twice the setting.
    election_timeout_ms: int = integer(
        _RAFT.election_timeout_ms,
        at_least=1,
        name="controller.quorum.election.timeout.ms",
        doc="A controller stands for election when it receives nothing from a leader for this long, up"
        " to twice as long. A leader resigns when it receives nothing from a majority for this"
        " long.",
    )
    election_timeout_max_ms: int = integer(
        _RAFT.election_timeout_max_ms,
        at_least=1,
        name="controller.quorum.election.timeout.max.ms",
        doc="The largest value to which controller.quorum.election.timeout.ms can grow. The timeout"
        " doubles when a controller that seemed dead is alive, for example on an overloaded"
        " machine. It halves after 30 s without such a mistake.",
    )
    quorum_heartbeat_interval_ms: int = integer(
        _RAFT.heartbeat_interval_ms,
        at_least=1,
        name="controller.quorum.heartbeat.interval.ms",
        doc="How often the leader of the quorum sends a heartbeat to the other controllers when it has"
        " nothing else to send.",
    )
    max_idle_interval_ms: int = integer(
        _RAFT.idle_no_op_interval_ms,
        at_least=0,
        name="metadata.max.idle.interval.ms",
        doc="How often the active controller appends an empty entry if there is nothing else to append."
        " It does so only in a quorum of several controllers. 0: never.",
    )
    snapshot_interval_bytes: int = long(
        2 * MIB,  # Kafka's 20 MiB would take seconds to replay in Python at the next start
        at_least=1,
        name="metadata.log.max.record.bytes.between.snapshots",
        doc="The controller writes a metadata snapshot after this many bytes of records, or"
        " after the size of the last snapshot if that is more. It then truncates the log before the"
        " snapshot.",
    )
    tail_max_bytes: int = integer(
        4 * MIB,
        at_least=1,
        name="metadata.log.tail.max.bytes",
        doc="The most bytes of records that the controller keeps in memory for servers that follow the"
        " metadata. A server that falls further behind gets a snapshot.",
    )
    queue_capacity: int = integer(
        1_000,
        at_least=1,
        name="controller.queue.max.events",
        doc="The most requests that wait in the controller's queue. The controller rejects further requests.",
    )
    request_timeout_ms: int = integer(
        30_000, at_least=1, doc="How long a request without its own timeout waits until it is committed."
    )
    partitions_per_request_max: int = integer(
        10_000,  # Kafka's own bound (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH)
        at_least=1,
        name="controller.partitions.per.request.max",
        doc="The most partitions that one request may create.",
    )
    broker_heartbeat_interval_ms: int = again(MemberConfig, "broker.heartbeat.interval.ms")
    broker_session_timeout_ms: int = again(MemberConfig, "broker.session.timeout.ms")
    connection_loss_timeout_ms: int = integer(
        500,
        at_least=1,
        doc="How long the controller waits for a heartbeat after a server's connection has closed, for"
        " example because the process died. Without a heartbeat, it then fences the server.",
    )
    coordinator_session_timeout_ms: int = integer(
        9_000,
        at_least=1,
        doc="The controller fences a coordinator that sends no heartbeat for this long. The coordinator"
        " then loses its shards.",
    )
    auto_leader_rebalance_enable: bool = boolean(
        True, doc="Whether the controller regularly moves leaderships back to the preferred leaders."
    )
    leader_imbalance_check_interval_seconds: int = long(
        300,
        at_least=1,
        doc="How often the controller looks for brokers that do not lead the partitions whose preferred"
        " leader they are.",
    )
    leader_imbalance_per_broker_percentage: int = integer(
        10,
        at_least=0,
        doc="The percentage of partitions that a broker, as their preferred leader, may fail to lead."
        " If it is more, the controller moves the leaderships back.",
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
        doc="The number of partitions of __transaction_state, over which transactional ids are spread."
        " It must not change once the topic exists.",
    )
    transaction_topic_replication_factor: int = integer(
        1,  # Kafka's default is 3, see offsets.topic.replication.factor
        at_least=1,
        at_most=32_767,
        name="transaction.state.log.replication.factor",
        doc="The number of replicas of __transaction_state. The topic cannot be created while fewer brokers are alive.",
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
                " an even number tolerates no more failures than one controller less"
            )
        if len(ids) > 1 and not self.cluster_id:
            raise ConfigError(
                "cluster.id is not set: expected the same id on all controllers that controller.quorum.voters names"
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
                "cluster.id is not set: expected the id of the quorum that controller.quorum.bootstrap.servers joins"
            )

    @property
    def joins_a_quorum(self) -> bool:
        """True if `controller.quorum.bootstrap.servers` names another server than this controller. Kafka's sample
        configuration files name only the controller itself there. Such a controller begins its quorum alone."""
        listeners = self.resolved_listeners()
        name = listeners.between_servers.name
        own = {listener.address for listener in (*listeners.bound, *listeners.advertised) if listener.name == name}
        servers = (parse_server(_BOOTSTRAP, text) for text in self.controller_quorum_bootstrap_servers)
        return any(server not in own for server in servers)

    def listed_voters(self) -> list[Voter]:
        """Returns the controllers of `controller.quorum.voters`, with unknown directories. The list is empty if this
        controller begins a quorum alone, or joins one."""
        return [parse_voter(text) for text in self.controller_quorum_voters]

    def contacts(self) -> list[str]:
        """Returns the addresses of the other configured controllers, as host:port. Raises ConfigError if one is
        malformed."""
        servers = [parse_server(_BOOTSTRAP, text) for text in self.controller_quorum_bootstrap_servers]
        listed = [voter.endpoint for voter in self.listed_voters() if voter.key.node_id != self.node_id]
        return [*listed, *(f"{host}:{port}" for host, port in servers if self.joins_a_quorum)]

    def own_address(self, host: str, port: int) -> str:
        """Returns the address at which the other controllers reach this one: the one in `controller.quorum.voters`, or
        else its advertised `host` and `port`."""
        listed = (voter.endpoint for voter in self.listed_voters() if voter.key.node_id == self.node_id)
        return next(listed, f"{host}:{port}")

    def raft_settings(self) -> RaftSettings:
        """Returns the settings of the Raft protocol between the controllers."""
        return RaftSettings(
            election_timeout_ms=self.election_timeout_ms,
            election_timeout_max_ms=self.election_timeout_max_ms,
            heartbeat_interval_ms=self.quorum_heartbeat_interval_ms,
            idle_no_op_interval_ms=self.max_idle_interval_ms,
            observer_timeout_ms=max(_RAFT.observer_timeout_ms, 2 * self.election_timeout_ms),
        )

    @property
    def data_path(self) -> Path:
        """The setting metadata.log.dir as a path."""
        return Path(self.metadata_log_dir)

    def topic_policy(self) -> TopicPolicy:
        """Returns the settings by which topics are created and deleted."""
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
    """Parses `id@host:port` into a voter whose directory is unknown. Raises ConfigError if the text is malformed."""
    node_id, separator, server = text.partition("@")
    if not separator or not (node_id.isascii() and node_id.isdecimal()):
        raise ConfigError(f"controller.quorum.voters: {text!r} is not valid, expected id@host:port")
    host, port = parse_server("controller.quorum.voters", server)
    return Voter(ReplicaKey(int(node_id), ANY_DIRECTORY), f"{host}:{port}")

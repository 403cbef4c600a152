"""The controller's configuration: Kafka's names where Kafka has the setting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from klamm.errors import ConfigError
from klamm.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from klamm_controller.metadata.policy import InternalTopicPolicy, TopicPolicy
from klamm_controller.raft.messages import ANY_DIRECTORY, ReplicaKey, Voter
from klamm_controller.raft.settings import RaftSettings
from klamm_server.broker_configs import BROKER_CONFIGS
from klamm_server.config import ServiceConfig, parse_server, setting
from klamm_server.config_def import ConfigDef, ConfigType, ConfigValue, Validator, at_least, between

MIB = 1 << 20
QUORUM_SIZES = (1, 3, 5)
_RAFT = RaftSettings()


def _own(
    name: str, type_: ConfigType, default: ConfigValue, validator: Validator | None, documentation: str
) -> ConfigDef:
    return ConfigDef(name=name, type=type_, default=default, validator=validator, documentation=documentation)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig(ServiceConfig):
    """Settings of one controller process."""

    DEFAULT_PORT: ClassVar[int] = 9093

    listeners: tuple[str, ...] = setting(
        _own(
            "listeners",
            ConfigType.LIST,
            (f"GRPC://localhost:{DEFAULT_PORT}",),
            None,
            "Where the controller listens, as NAME://host:port; an empty host is every interface.",
        )
    )
    metadata_log_dir: str = setting(
        _own(
            "metadata.log.dir",
            ConfigType.STRING,
            "klamm-data/controller",
            None,
            "The directory of the metadata log and its snapshots.",
        )
    )
    cluster_id: str = setting(
        _own(
            "cluster.id",
            ConfigType.STRING,
            "",
            None,
            "The cluster this controller must belong to; empty: the one its directory says, or a new one.",
        )
    )
    controller_quorum_voters: tuple[str, ...] = setting(
        _own(
            "controller.quorum.voters",
            ConfigType.LIST,
            (),
            None,
            "The controllers that begin the quorum, as id@host:port, one, three or five of them, the same list for all;"
            " empty: this one alone. Once the log has begun it says who votes, and these are only asked who leads.",
        )
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        replace(
            BROKER_CONFIGS["controller.quorum.bootstrap.servers"],
            default=(),
            documentation="Controllers of an existing quorum that this one joins, as host:port; without"
            " controller.quorum.voters. It follows until it is added with klamm cluster add-controller.",
        )
    )
    election_timeout_ms: int = setting(
        _own(
            "controller.quorum.election.timeout.ms",
            ConfigType.INT,
            # Kafka's is 1,000, and grows to twice that: this one too, but from less.
            _RAFT.election_timeout_ms,
            at_least(1),
            "A controller that hears no leader for this long, up to twice as long, stands for election; a leader that"
            " hears no majority for this long resigns.",
        )
    )
    election_timeout_max_ms: int = setting(
        _own(
            "controller.quorum.election.timeout.max.ms",
            ConfigType.INT,
            _RAFT.election_timeout_max_ms,
            at_least(1),
            "What controller.quorum.election.timeout.ms may grow to: it doubles when a controller that was taken for"
            " dead is alive, as on a machine that is too busy, and halves after 30 s without that.",
        )
    )
    quorum_heartbeat_interval_ms: int = setting(
        _own(
            "controller.quorum.heartbeat.interval.ms",
            ConfigType.INT,
            _RAFT.heartbeat_interval_ms,
            at_least(1),
            "How often a leader speaks to the other controllers when it has nothing to say.",
        )
    )
    max_idle_interval_ms: int = setting(
        _own(
            "metadata.max.idle.interval.ms",
            ConfigType.INT,
            _RAFT.idle_no_op_interval_ms,
            at_least(0),
            "How often the active controller of a quorum of several appends an empty entry when there is nothing else;"
            " 0: never.",
        )
    )
    snapshot_interval_bytes: int = setting(
        _own(
            "metadata.log.max.record.bytes.between.snapshots",
            ConfigType.LONG,
            # Kafka's 20 MiB would take seconds to replay in Python at the next start.
            2 * MIB,
            at_least(1),
            "After this many bytes of records, or as many as the last snapshot has if those are more, the metadata is"
            " written as a snapshot and the log is cut behind it.",
        )
    )
    tail_max_bytes: int = setting(
        _own(
            "metadata.log.tail.max.bytes",
            ConfigType.INT,
            4 * MIB,
            at_least(1),
            "Records kept in memory for servers that follow the metadata; one that falls further behind gets a"
            " snapshot.",
        )
    )
    queue_capacity: int = setting(
        _own(
            "controller.queue.max.events",
            ConfigType.INT,
            1_000,
            at_least(1),
            "Requests that wait for their turn; one more is refused.",
        )
    )
    request_timeout_ms: int = setting(
        _own(
            "request.timeout.ms",
            ConfigType.INT,
            30_000,
            at_least(1),
            "How long a request that names no time-out waits to be committed.",
        )
    )
    partitions_per_request_max: int = setting(
        _own(
            "controller.partitions.per.request.max",
            ConfigType.INT,
            # Kafka's own bound (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH).
            10_000,
            at_least(1),
            "Partitions that one request may create.",
        )
    )
    broker_heartbeat_interval_ms: int = setting(BROKER_CONFIGS["broker.heartbeat.interval.ms"])
    broker_session_timeout_ms: int = setting(BROKER_CONFIGS["broker.session.timeout.ms"])
    connection_loss_timeout_ms: int = setting(
        _own(
            "connection.loss.timeout.ms",
            ConfigType.INT,
            500,
            at_least(1),
            "A server whose connection to the controller ended, as when its process dies, is fenced when nothing is"
            " heard of it for this long.",
        )
    )
    coordinator_session_timeout_ms: int = setting(
        _own(
            "coordinator.session.timeout.ms",
            ConfigType.INT,
            9_000,
            at_least(1),
            "A coordinator that the controller has not heard of for this long is fenced, and loses its shards.",
        )
    )
    auto_leader_rebalance_enable: bool = setting(
        _own(
            "auto.leader.rebalance.enable",
            ConfigType.BOOLEAN,
            True,
            None,
            "Whether brokers get back, now and then, the partitions whose preferred leader they are.",
        )
    )
    leader_imbalance_check_interval_seconds: int = setting(
        _own(
            "leader.imbalance.check.interval.seconds",
            ConfigType.LONG,
            300,
            at_least(1),
            "How often that is looked after.",
        )
    )
    leader_imbalance_per_broker_percentage: int = setting(
        _own(
            "leader.imbalance.per.broker.percentage",
            ConfigType.INT,
            10,
            at_least(0),
            "How many percent of these partitions a broker may fail to lead without that anything is done.",
        )
    )
    num_partitions: int = setting(BROKER_CONFIGS["num.partitions"])
    default_replication_factor: int = setting(BROKER_CONFIGS["default.replication.factor"])
    delete_topic_enable: bool = setting(BROKER_CONFIGS["delete.topic.enable"])
    offsets_topic_num_partitions: int = setting(BROKER_CONFIGS["offsets.topic.num.partitions"])
    offsets_topic_replication_factor: int = setting(
        # Kafka's default is 3, with which a single broker could not create the topic. `klamm up` sets what fits.
        replace(BROKER_CONFIGS["offsets.topic.replication.factor"], default=1)
    )
    transaction_topic_num_partitions: int = setting(
        _own(
            "transaction.state.log.num.partitions",
            ConfigType.INT,
            50,
            at_least(1),
            "Shards of the transactional ids; must not change once __transaction_state exists.",
        )
    )
    transaction_topic_replication_factor: int = setting(
        _own(
            "transaction.state.log.replication.factor",
            ConfigType.INT,
            # As for offsets.topic.replication.factor.
            1,
            between(1, 32_767),
            "Replicas of __transaction_state; it cannot be created while fewer brokers are alive.",
        )
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
        if self.controller_quorum_voters:
            raise ConfigError(
                "controller.quorum.voters and controller.quorum.bootstrap.servers are both set: the first begins a"
                " quorum, the second joins one"
            )
        if not self.cluster_id:
            raise ConfigError(
                "cluster.id must be set, that of the quorum to join, with controller.quorum.bootstrap.servers"
            )

    def listed_voters(self) -> list[Voter]:
        """The controllers that begin the quorum, their directories unknown; empty: this one alone, or it joins one."""
        return [parse_voter(text) for text in self.controller_quorum_voters]

    def contacts(self) -> list[str]:
        """Other controllers to ask, as host:port. Raises ConfigError."""
        name = "controller.quorum.bootstrap.servers"
        servers = [parse_server(name, text) for text in self.controller_quorum_bootstrap_servers]
        listed = [voter.endpoint for voter in self.listed_voters() if voter.key.node_id != self.node_id]
        return [*listed, *(f"{host}:{port}" for host, port in servers)]

    def own_address(self, host: str, port: int) -> str:
        """Where the others reach this one: as it is listed, or else at its advertised `host` and `port`."""
        listed = (voter.endpoint for voter in self.listed_voters() if voter.key.node_id == self.node_id)
        return next(listed, f"{host}:{port}")

    def raft_settings(self) -> RaftSettings:
        """Those of the quorum."""
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
            },
        )


def parse_voter(text: str) -> Voter:
    """A controller of the quorum, from `id@host:port`. Raises ConfigError."""
    node_id, separator, server = text.partition("@")
    if not separator or not (node_id.isascii() and node_id.isdecimal()):
        raise ConfigError(f"controller.quorum.voters: {text!r} is not valid, expected id@host:port")
    host, port = parse_server("controller.quorum.voters", server)
    return Voter(ReplicaKey(int(node_id), ANY_DIRECTORY), f"{host}:{port}")

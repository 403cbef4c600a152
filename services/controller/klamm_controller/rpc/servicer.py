"""Joins the families of calls into one object per service, as RpcServer expects."""

from __future__ import annotations

from klamm_controller.rpc.acls import AclsRpcs
from klamm_controller.rpc.cluster import ClusterRpcs
from klamm_controller.rpc.configs import ConfigsRpcs
from klamm_controller.rpc.nodes import NodesRpcs
from klamm_controller.rpc.quorum import QuorumRpcs
from klamm_controller.rpc.quotas import QuotasRpcs
from klamm_controller.rpc.replicas import LeadersAndReplicasRpcs, ReplicasRpcs
from klamm_controller.rpc.topics import TopicsRpcs
from klamm_controller.rpc.users import UsersRpcs
from klamm_controller.rpc.watch import WatchRpcs


class AdminServicer:
    """The Admin service, which operators call."""

    def __init__(
        self,
        topics: TopicsRpcs,
        configs: ConfigsRpcs,
        cluster: ClusterRpcs,
        replicas: LeadersAndReplicasRpcs,
        quorum: QuorumRpcs,
        acls: AclsRpcs,
        users: UsersRpcs,
        quotas: QuotasRpcs,
    ) -> None:
        self.create_topics = topics.create_topics
        self.delete_topics = topics.delete_topics
        self.create_partitions = topics.create_partitions
        self.describe_topics = topics.describe_topics
        self.describe_configs = configs.describe_configs
        self.incremental_alter_configs = configs.incremental_alter_configs
        self.describe_cluster = cluster.describe_cluster
        self.unregister_broker = cluster.unregister_broker
        self.elect_leaders = replicas.elect_leaders
        self.alter_partition_reassignments = replicas.alter_partition_reassignments
        self.list_partition_reassignments = replicas.list_partition_reassignments
        self.describe_quorum = quorum.describe_quorum
        self.add_raft_voter = quorum.add_raft_voter
        self.remove_raft_voter = quorum.remove_raft_voter
        self.describe_acls = acls.describe_acls
        self.create_acls = acls.create_acls
        self.delete_acls = acls.delete_acls
        self.check_acl = acls.check_acl
        self.alter_user_scram_credentials = users.alter_user_scram_credentials
        self.describe_user_scram_credentials = users.describe_user_scram_credentials
        self.alter_client_quotas = quotas.alter_client_quotas
        self.describe_client_quotas = quotas.describe_client_quotas


class ControllerServicer:
    """The Controller service, which brokers and coordinators call."""

    def __init__(self, nodes: NodesRpcs, replicas: ReplicasRpcs, watch: WatchRpcs) -> None:
        self.register_broker = nodes.register_broker
        self.broker_heartbeat = nodes.broker_heartbeat
        self.register_coordinator = nodes.register_coordinator
        self.coordinator_heartbeat = nodes.coordinator_heartbeat
        self.hold_session = nodes.hold_session
        self.allocate_producer_ids = nodes.allocate_producer_ids
        self.alter_partition = replicas.alter_partition
        self.report_offline_replicas = replicas.report_offline_replicas
        self.resign_replicas = replicas.resign_replicas
        self.report_replica_logs = replicas.report_replica_logs
        self.watch_metadata = watch.watch_metadata

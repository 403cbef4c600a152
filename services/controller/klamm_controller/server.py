"""The controller service: creates and starts the parts of a controller, and stops them in order.

open      locks the data directory, reads the log and replays the snapshot; there is no network yet
register  adds Admin, Controller and Raft to an RPC server; they answer NOT_CONTROLLER until `start`
start     begins an empty log with the voters that all agree on (founding.py), takes part in the quorum, and runs the
          queue
(active)  while the quorum's leader: keeps the sessions and decides, until the quorum elects another controller
stop      stops deciding, hands over to another controller, makes the appended entries durable, ends the streams
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from klamm.rpc.transport import Transport
from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from klamm.wire.v1.metadata_pb2 import ClusterRecord, MetadataRecord
from klamm.wire.v1.raft_rpc import RAFT
from klamm_controller.active.committed_tail import CommittedTail
from klamm_controller.active.controller import Controller
from klamm_controller.active.leader_balance import LeaderBalance
from klamm_controller.active.liveness import BROKERS, COORDINATORS, Liveness
from klamm_controller.active.metrics import watch_controller
from klamm_controller.active.sweeper import Sweeper
from klamm_controller.config import ControllerConfig
from klamm_controller.io.address_book import AddressBook, enumerate_contacts
from klamm_controller.io.founding import first_voters, former_directory
from klamm_controller.io.introductions import Introductions
from klamm_controller.io.peers import Peers
from klamm_controller.log.bootstrap import remove_bootstrap_records
from klamm_controller.log.database import OpenDatabase
from klamm_controller.log.quorum_log import QuorumLog
from klamm_controller.log.recovery import Recovered, recover
from klamm_controller.log.rocks_database import RocksDatabase
from klamm_controller.metadata.policy import TopicPolicy
from klamm_controller.metadata.replica_logs import ReplicaLogs
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey, Voter
from klamm_controller.rpc.acls import AclsRpcs
from klamm_controller.rpc.cluster import ClusterRpcs
from klamm_controller.rpc.configs import ConfigsRpcs
from klamm_controller.rpc.gateway import Gateway
from klamm_controller.rpc.mutations import Mutations
from klamm_controller.rpc.nodes import NodesRpcs
from klamm_controller.rpc.quorum import QuorumRpcs
from klamm_controller.rpc.quotas import QuotasRpcs
from klamm_controller.rpc.raft import RaftRpcs, lost_directory
from klamm_controller.rpc.replicas import LeadersAndReplicasRpcs, ReplicasRpcs
from klamm_controller.rpc.servicer import AdminServicer, ControllerServicer
from klamm_controller.rpc.topics import TopicsRpcs
from klamm_controller.rpc.users import UsersRpcs
from klamm_controller.rpc.watch import WatchRpcs
from klamm_server.links.audit_topic import AuditTopic
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.metrics.process_metrics import event_queue_observer, watch_disk, watch_event_queue_length
from klamm_server.net.listeners import Listener
from klamm_server.rpc.call_throttle import CallThrottle
from klamm_server.rpc.grpc_server import GrpcServerTransport
from klamm_server.rpc.other_services import KnownServers, Role
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.awaitable_flag import AwaitableFlag
from klamm_server.runtime.clock import Clock, SystemClock
from klamm_server.runtime.disk import Disk
from klamm_server.runtime.event_queue import EventQueue
from klamm_server.runtime.faults import fatal, watch
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.auditor import Auditor, auditor_of
from klamm_server.security.configured import authorizer_of, check_own_principal, gate_of
from klamm_server.security.listeners_tls import ListenersTls
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.mutation_quotas import MutationQuotas
from klamm_server.security.quotas.rate_window import WindowSpan

log = logging.getLogger(__name__)


class ControllerServer:
    """A controller, either as a process of its own or as a part of an embedded cluster."""

    def __init__(
        self,
        config: ControllerConfig,
        tls: ListenersTls | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        disk: Disk | None = None,
        open_database: OpenDatabase = RocksDatabase,
        transport: Transport | None = None,
        authorizer: StandardAuthorizer | None = None,
    ) -> None:
        self._authorizer = authorizer or authorizer_of(config)
        check_own_principal(self._authorizer, tls, must_be_super=True)
        self._tls = tls
        self._transport = transport or GrpcServerTransport(tls=None if tls is None else tls.between_servers)
        self._config = config
        self._clock = clock or SystemClock()
        self._rng = rng or random.SystemRandom()
        self._disk = disk or Disk()
        self._open_database = open_database
        self._auditor = auditor_of(config, "controller", self._clock, self._make_audit_topic)
        self._node: _Node | None = None

    def _make_audit_topic(self) -> AuditTopic:
        own = self._config.resolved_listeners().between_servers
        return AuditTopic(self._transport, lambda: self.loaded_image() or MetadataImage.empty(), own, self._clock)

    async def open(self) -> None:
        """Locks the data directory and recovers the metadata from it. Raises KlammError if the directory or its log is
        unusable."""
        recovered = recover(self._config, disk=self._disk, open_database=self._open_database, rng=self._rng)
        self._node = _Node(
            self._config,
            self._transport,
            self._clock,
            self._rng,
            recovered,
            self._authorizer,
            self._tls,
            self._auditor,
        )
        log.info(
            "metadata recovered cluster_id=%s end_index=%d topics=%d",
            recovered.data_dir.cluster_id,
            recovered.image.end_index,
            len(recovered.image.topics_by_name),
        )

    @property
    def cluster_id(self) -> str:
        """The id of the cluster to which this controller belongs. Call `open` first."""
        return self._opened.recovered.data_dir.cluster_id

    def register(self, rpc: RpcServer) -> None:
        """Adds the Admin, Controller and Raft services to `rpc`."""
        self._opened.register(rpc)

    async def start(self, endpoints: Sequence[Listener]) -> None:
        """Starts taking part in the quorum. Other servers and clients dial the addresses in `endpoints`.

        A controller that is the only voter is active when this returns. A controller with an empty directory waits for
        the other configured controllers."""
        await self._opened.start(self._config.own_address(*endpoints[0].address), endpoints)
        log.info("controller started node=%d endpoint=%s:%d", self._config.node_id, *endpoints[0].address)

    def loaded_image(self) -> MetadataImage | None:
        return None if self._node is None else self._node.loaded_image()

    @property
    def auditors(self) -> Sequence[Auditor]:
        return () if self._auditor is None else (self._auditor,)

    async def wait_serving(self, wanted: bool) -> None:
        """Waits until this controller serves, or until it does not, if `wanted` is False. It serves while it leads the
        quorum, or follows the leader with all committed entries."""
        await self._opened.in_step.wait(wanted)

    async def stop(self) -> None:
        """Stops the controller. All changes that it has acknowledged are durable. Does nothing if the controller is not
        open."""
        node, self._node = self._node, None
        if node is not None:
            await node.stop()

    @property
    def _opened(self) -> _Node:
        assert self._node is not None, "the controller is not open"
        return self._node


class _Node:
    """The parts of an open controller."""

    def __init__(
        self,
        config: ControllerConfig,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        recovered: Recovered,
        authorizer: StandardAuthorizer | None,
        tls: ListenersTls | None,
        auditor: Auditor | None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._rng = rng
        self._authorizer = authorizer
        self._gate = gate_of(
            authorizer,
            tls,
            lambda: self._controller.committed.acls,
            servers_listener=config.servers_listener(),
            is_loaded=lambda: self._log.in_step.is_on,
            auditor=auditor,
        )
        self._transport = transport
        self.recovered = recovered
        self._queue = EventQueue(
            "controller",
            capacity=config.queue_capacity,
            clock=clock,
            on_handled=event_queue_observer("controller"),
        )
        watch_event_queue_length("controller", self._queue.__len__)
        cluster_id = recovered.data_dir.cluster_id
        self._me = ReplicaKey(config.node_id, recovered.store.directory_id)
        contacts = config.contacts()
        self._book = AddressBook(contacts, lambda: self._log.quorum.voters, config.resolved_listeners().between_servers)
        self._peers = Peers(transport, self._me, self._book, cluster_id=cluster_id, rng=rng)
        self._log = QuorumLog(
            recovered.store,
            recovered.stored,
            me=self._me,
            end_index=recovered.image.end_index,
            settings=config.raft_settings(),
            snapshot_interval_bytes=config.snapshot_interval_bytes,
            send=self._peers.send,
            address_of=self._book.address,
            known_nodes=[node_id for node_id, _ in enumerate_contacts(contacts)],
            clock=clock,
            rng=rng,
            on_failure=fatal,
        )
        self._raft = RaftRpcs(
            self._me,
            cluster_id,
            voter_ids=[voter.key.node_id for voter in config.listed_voters()],
            receive=self._log.receive,
            learn=self._learn,
        )
        tail = CommittedTail(config.tail_max_bytes, recovered.image.end_index)
        self._controller = Controller(log=self._log, queue=self._queue, image=recovered.image, tail=tail)
        watch_controller(self._controller)
        watch_disk(config.metadata_log_dir)
        self._sweeper = Sweeper(self._controller, self._queue, clock)
        self._leader_balance = LeaderBalance(
            self._controller,
            self._queue,
            clock,
            interval_ms=1000 * config.leader_imbalance_check_interval_seconds,
            percentage=config.leader_imbalance_per_broker_percentage,
            sweep=self._sweeper.add,
        )
        self._brokers = Liveness(
            BROKERS,
            self._controller,
            self._queue,
            clock,
            session_timeout_ms=config.broker_session_timeout_ms,
            connection_loss_timeout_ms=config.connection_loss_timeout_ms,
        )
        self._coordinators = Liveness(
            COORDINATORS,
            self._controller,
            self._queue,
            clock,
            session_timeout_ms=config.coordinator_session_timeout_ms,
            connection_loss_timeout_ms=config.connection_loss_timeout_ms,
        )
        self._gateway = Gateway(
            self._controller,
            self._log.quorum,
            node_id=config.node_id,
            request_timeout_ms=config.request_timeout_ms,
            listeners=self._book.listeners,
        )
        self._queue_task: asyncio.Task[None] | None = None
        self._introducing: asyncio.Task[None] | None = None
        self._beginning: asyncio.Task[None] | None = None

    @property
    def in_step(self) -> AwaitableFlag:
        """The flag that is set while this controller decides, or follows a leader with all committed entries
        (`QuorumLog.in_step`)."""
        return self._log.in_step

    def loaded_image(self) -> MetadataImage | None:
        """Returns the committed metadata, or None if this controller may lack committed entries or the log has not
        begun."""
        committed = self._controller.committed
        return committed if self._log.in_step.is_on and committed.cluster_id else None

    def register(self, rpc: RpcServer) -> None:
        gateway = self._gateway
        policy = self._config.topic_policy()
        # Replicas are placed by many random numbers. Those of the system take seven times as long.
        placement = random.Random(self._rng.getrandbits(64))
        topics = TopicsRpcs(gateway, policy, placement, self._make_mutations(policy))
        quorum = QuorumRpcs(gateway, self._brokers, self._coordinators)
        logs = ReplicaLogs()
        rpc.add_role(Role.CONTROLLER, KnownServers(lambda: self._controller.committed))
        rpc.add_service(
            ADMIN,
            AdminServicer(
                topics,
                ConfigsRpcs(gateway),
                ClusterRpcs(gateway),
                LeadersAndReplicasRpcs(gateway, logs),
                quorum,
                AclsRpcs(gateway, self._rng, self._authorizer),
                UsersRpcs(gateway, self._rng),
                QuotasRpcs(gateway),
            ),
            self._gate,
            self._make_throttle(),
        )
        nodes = NodesRpcs(gateway, self._brokers, self._coordinators, has_authorizer=self._authorizer is not None)
        rpc.add_service(
            CONTROLLER, ControllerServicer(nodes, ReplicasRpcs(gateway, logs), WatchRpcs(self._controller)), self._gate
        )
        rpc.add_service(RAFT, self._raft, self._gate)

    def _make_throttle(self) -> CallThrottle:
        quotas = ClientQuotas(WindowSpan(self._config.quota_window_num, 1000 * self._config.quota_window_size_seconds))
        return CallThrottle(quotas, self._clock, newest=lambda: self._controller.committed.client_quotas)

    def _make_mutations(self, policy: TopicPolicy) -> Mutations:
        config = self._config
        span = WindowSpan(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        return Mutations(
            MutationQuotas(span),
            policy,
            lambda: self._controller.committed,
            self._clock,
            knows_callers=self._gate is not None,
        )

    async def start(self, address: str, listeners: Sequence[Listener]) -> None:
        self._book.learn(self._me, address, listeners)
        introductions = Introductions(
            self._transport,
            self._me,
            address,
            listeners,
            cluster_id=self.recovered.data_dir.cluster_id,
            contacts=self._config.contacts(),
            voter_ids=[voter.key.node_id for voter in self._config.listed_voters()],
            learn=self._learn,
            rng=self._rng,
        )
        self._introducing = watch(asyncio.create_task(introductions.run(), name="controller-introductions"))
        stored = self.recovered.stored
        if stored is None:
            self._log.begin(await self._first_voters(address, introductions))
        self._raft.bootstrap_voters = self.recovered.store.bootstrap_voters()
        self._queue_task = watch(asyncio.create_task(self._queue.run(), name="controller-queue"))
        self._controller.start(on_claimed=self._on_claimed, on_resigned=self._on_resigned, on_sweep=self._sweeper.add)
        if self.recovered.bootstrap_records:
            self._beginning = watch(asyncio.create_task(self._drop_bootstrap_records(), name="controller-beginning"))
        if self._log.quorum.votes_alone:
            await self._controller.wait_active()
            await self._controller.wait_beyond(0)

    async def stop(self) -> None:
        self._controller.resign()
        self._queue.close()
        if self._queue_task is not None:
            await self._queue_task
        await self._controller.close()
        self._raft.stop()
        await self._peers.stop()
        for task in filter(None, (self._introducing, self._beginning)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.recovered.data_dir.close()

    async def _first_voters(self, address: str, introductions: Introductions) -> VoterSet:
        """Returns the voters with which the log begins (founding.py). Waits until all controllers that it must ask have
        answered."""
        me, listed = Voter(self._me, address), self._config.listed_voters() or self._alone()
        while (voters := first_voters(me, listed, introductions.by_contact)) is None:
            await introductions.wait_for_introduction()
        log.info("the metadata log starts with the voters %s", voters)
        former = former_directory(self._me, voters)
        if former is not None:
            log.warning("the voters know a former directory of this controller: %s", lost_directory(self._me, former))
        return voters

    async def _drop_bootstrap_records(self) -> None:
        """Deletes the bootstrap records from the disk once the log has begun. Logs a warning if the log lacks them,
        because another controller began it."""
        while not (committed := self._controller.committed).cluster_id:
            if not await self._controller.wait_beyond(committed.end_index):
                return
        wanted = replay(MetadataImage.empty(), self.recovered.bootstrap_records, 0).scram_credentials
        if not wanted.items() <= committed.scram_credentials.items():
            log.warning(
                "another controller started the metadata log, so the users that `klamm format` wrote here are not"
                " in the log"
            )
        remove_bootstrap_records(self.recovered.data_dir.disk, self.recovered.data_dir.path)

    def _alone(self) -> list[Voter]:
        """Returns the voters if none are configured: only this controller, or an empty list if it joins a quorum."""
        return [] if self._config.joins_a_quorum else [Voter(self._me, "")]

    def _learn(self, key: ReplicaKey, address: str, listeners: Sequence[Listener] = ()) -> None:
        self._book.learn(key, address, listeners)
        self._log.quorum.update_voters(self._book.moved_voters())

    def _on_claimed(self) -> None:
        if not self._controller.appended.cluster_id:
            # The cluster's id is the first record of every log, before the records of any request.
            identity = ClusterRecord(cluster_id=self.recovered.data_dir.cluster_id)
            self._controller.append([MetadataRecord(cluster=identity), *self.recovered.bootstrap_records])
        self._log.quorum.update_voters(self._book.moved_voters())
        self._brokers.start()
        self._coordinators.start()
        self._sweeper.start()
        if self._config.auto_leader_rebalance_enable:
            self._leader_balance.start()

    def _on_resigned(self) -> None:
        self._brokers.stop()
        self._coordinators.stop()
        self._sweeper.stop()
        self._leader_balance.stop()

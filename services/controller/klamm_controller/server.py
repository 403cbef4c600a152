"""The controller service: puts the pieces together, and takes them apart in order.

open      the data directory is locked, the log read, the snapshot replayed; no network yet
register  Admin, Controller and Raft are added to an RPC server; they answer NOT_CONTROLLER until
start     the controller takes part in the quorum, and the queue runs
(active)  by the quorum's choice: sessions begin, decisions are taken; until the quorum chooses another
stop      no more decisions; another takes over; what was appended is made durable; streams end
"""

from __future__ import annotations

import asyncio
import logging
import random

from klamm.wire.service import ADMIN, CONTROLLER, RAFT
from klamm.wire.v1.common_pb2 import Endpoint, Node
from klamm.wire.v1.metadata_pb2 import ClusterRecord, MetadataRecord
from klamm_controller.committed_tail import CommittedTail
from klamm_controller.config import ControllerConfig, address
from klamm_controller.controller import Controller
from klamm_controller.io.peer_link import PeerLink
from klamm_controller.liveness import BROKERS, COORDINATORS, Liveness
from klamm_controller.log.quorum import QuorumLog
from klamm_controller.metrics import watch_controller
from klamm_controller.raft.messages import Message, ReplicaKey
from klamm_controller.recovery import Recovered, recover
from klamm_controller.rpc.cluster import ClusterRpcs
from klamm_controller.rpc.configs import ConfigsRpcs
from klamm_controller.rpc.gateway import Gateway
from klamm_controller.rpc.nodes import NodesRpcs
from klamm_controller.rpc.quorum import QuorumRpcs
from klamm_controller.rpc.raft import RaftRpcs
from klamm_controller.rpc.servicer import servicer
from klamm_controller.rpc.topics import TopicsRpcs
from klamm_controller.rpc.watch import WatchRpcs
from klamm_server.clock import Clock, SystemClock
from klamm_server.event_queue import EventQueue
from klamm_server.faults import fatal, watch
from klamm_server.metrics import event_queue_observer, watch_event_queue_length
from klamm_server.rpc_server import RpcServer

log = logging.getLogger(__name__)


class ControllerServer:
    """One controller process, or the controller's part of an embedded cluster."""

    def __init__(self, config: ControllerConfig, *, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._node: _Node | None = None

    async def open(self) -> None:
        """Recovers the metadata. Raises KlammError when the directory or the log in it is not usable."""
        recovered = recover(self._config)
        self._node = _Node(self._config, self._clock, recovered)
        log.info(
            "metadata recovered cluster_id=%s end_index=%d topics=%d",
            recovered.data_dir.cluster_id,
            recovered.image.end_index,
            len(recovered.image.topics_by_name),
        )

    @property
    def cluster_id(self) -> str:
        """The cluster this controller belongs to; known once open."""
        return self._opened.recovered.data_dir.cluster_id

    def register(self, rpc: RpcServer) -> None:
        """Adds the Admin, Controller and Raft services."""
        self._opened.register(rpc)

    async def start(self, host: str, port: int) -> None:
        """Takes part in the quorum; `host` and `port` are where others reach it. Who is alone is active then."""
        await self._opened.start(Endpoint(host=host, port=port))
        log.info("controller started node=%d endpoint=%s:%d", self._config.node_id, host, port)

    async def stop(self) -> None:
        """Ends in order; everything that was answered is durable. Harmless when not open."""
        node, self._node = self._node, None
        if node is not None:
            await node.stop()

    @property
    def _opened(self) -> _Node:
        assert self._node is not None, "the controller is not open"
        return self._node


class _Node:
    """The pieces of an open controller."""

    def __init__(self, config: ControllerConfig, clock: Clock, recovered: Recovered) -> None:
        self._config = config
        self.recovered = recovered
        self._queue = EventQueue(
            "controller",
            capacity=config.queue_capacity,
            clock=clock,
            on_handled=event_queue_observer("controller"),
        )
        watch_event_queue_length("controller", self._queue.__len__)
        cluster_id = recovered.data_dir.cluster_id
        rng = random.Random()
        self._links = {
            voter.node_id: PeerLink(address(voter), cluster_id=cluster_id, rng=rng)
            for voter in config.voters()
            if voter.node_id != config.node_id
        }
        metadata_log = QuorumLog(
            recovered.store,
            recovered.stored,
            me=ReplicaKey(config.node_id, ""),
            end_index=recovered.image.end_index,
            settings=config.raft_settings(),
            snapshot_interval_bytes=config.snapshot_interval_bytes,
            send=self._send,
            clock=clock,
            rng=rng,
            on_failure=fatal,
        )
        self._raft = RaftRpcs(cluster_id, metadata_log.receive)
        tail = CommittedTail(config.tail_max_bytes, recovered.image.end_index)
        self._controller = Controller(log=metadata_log, queue=self._queue, image=recovered.image, tail=tail)
        watch_controller(self._controller)
        self._brokers = Liveness(
            BROKERS,
            self._controller,
            self._queue,
            clock,
            session_timeout_ms=config.broker_session_timeout_ms,
        )
        self._coordinators = Liveness(
            COORDINATORS,
            self._controller,
            self._queue,
            clock,
            session_timeout_ms=config.coordinator_session_timeout_ms,
        )
        self._gateway = Gateway(self._controller, node_id=config.node_id, request_timeout_ms=config.request_timeout_ms)
        self._queue_task: asyncio.Task[None] | None = None
        self._link_tasks: list[asyncio.Task[None]] = []

    def register(self, rpc: RpcServer) -> None:
        gateway = self._gateway
        topics = TopicsRpcs(gateway, self._config.topic_policy(), random.Random())
        rpc.add_service(ADMIN, servicer(topics, ConfigsRpcs(gateway), ClusterRpcs(gateway), QuorumRpcs(gateway)))
        nodes = NodesRpcs(gateway, self._brokers, self._coordinators)
        rpc.add_service(CONTROLLER, servicer(nodes, WatchRpcs(self._controller)))
        rpc.add_service(RAFT, self._raft)

    async def start(self, endpoint: Endpoint) -> None:
        voters = self._config.voters()
        self._gateway.quorum = voters or (Node(node_id=self._config.node_id, endpoint=endpoint),)
        self._queue_task = watch(asyncio.create_task(self._queue.run(), name="controller-queue"))
        self._link_tasks = [
            watch(asyncio.create_task(link.run(), name=f"controller-link-{node_id}"))
            for node_id, link in self._links.items()
        ]
        self._controller.start(on_claimed=self._begin_to_decide, on_resigned=self._cease_to_decide)
        if not self._links:
            await self._controller.wait_active()
            await self._controller.wait_beyond(0)

    async def stop(self) -> None:
        self._controller.resign()
        self._queue.close()
        if self._queue_task is not None:
            await self._queue_task
        await self._controller.close()
        self._raft.stop()
        for task in self._link_tasks:
            task.cancel()
        await asyncio.gather(*self._link_tasks, return_exceptions=True)
        self.recovered.data_dir.close()

    def _send(self, message: Message) -> None:
        link = self._links.get(message.receiver.node_id)
        if link is not None:
            link.send(message)

    def _begin_to_decide(self) -> None:
        if not self._controller.appended.cluster_id:
            # Before any request: the first record of every log.
            identity = ClusterRecord(cluster_id=self.recovered.data_dir.cluster_id)
            self._controller.append([MetadataRecord(cluster=identity)])
        self._brokers.start()
        self._coordinators.start()

    def _cease_to_decide(self) -> None:
        self._brokers.stop()
        self._coordinators.stop()

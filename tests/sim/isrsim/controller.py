"""The controller: the real handlers on the real image. The records that it appends are committed at once.

Work on many partitions is done in turns of a few partitions, as by a controller of a large cluster. For this purpose,
the topic has neighbours, and a turn is short. When another controller takes over, it knows nothing of unfinished work
and every session is new. The new controller goes through all partitions.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from klamm.wire.v1.controller_pb2 import (
    ELECTION_TYPE_PREFERRED,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    ElectLeadersRequest,
    PartitionReassignment,
    RegisterBrokerRequest,
    ReportReplicaLogsRequest,
    ResignReplicasRequest,
)
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_TOPIC,
    BrokerIds,
    ClusterRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from klamm_controller.metadata import sweep as sweeps
from klamm_controller.metadata.alter_partition import handle_alter_partition
from klamm_controller.metadata.brokers import (
    BrokerRegistration,
    handle_broker_heartbeat,
    handle_broker_session_end,
)
from klamm_controller.metadata.decision import Decision
from klamm_controller.metadata.elections import LeaderElections
from klamm_controller.metadata.reassignment import handle_alter_partition_reassignments
from klamm_controller.metadata.replica_logs import ReplicaLogs
from klamm_controller.metadata.resignation import handle_resign_replicas
from klamm_controller.metadata.sessions import Sessions
from klamm_controller.metadata.sweep import Sweep, all_partitions
from klamm_controller.metadata.unclean_recovery import handle_replica_logs
from klamm_server.metadata.entities import PartitionImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from tests.sim.isrsim.network import CONTROLLER, Network
from tests.sim.isrsim.options import Options
from tests.sim.kit.world import MS, World

TOPIC = "t"
TOPIC_ID = uuid.UUID(int=2)
NEIGHBOURS = (("before", uuid.UUID(int=1)), ("behind", uuid.UUID(int=3)))
"""Topics that are there to be swept too."""
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@contextmanager
def turns_of(partition_count: int) -> Iterator[None]:
    """A controller looks at `partition_count` partitions in one turn."""
    with (
        mock.patch.object(sweeps, "PARTITIONS_PER_EVENT", partition_count),
        mock.patch.dict(Sweep.__init__.__kwdefaults__, changes_max=partition_count),
    ):
        yield


class SimController:
    """A simulated controller. It calls `on_commit` after every change of the image."""

    def __init__(
        self, world: World, network: Network, options: Options, on_commit: Callable[[MetadataImage], None]
    ) -> None:
        self._world = world
        self._network = network
        self._options = options
        self._on_commit = on_commit
        self._sessions = Sessions(options.session_timeout_ms)
        self._sweeps: deque[Sweep] = deque()
        self._logs = ReplicaLogs()
        self._term = 0
        self._log: list[tuple[int, Sequence[MetadataRecord]]] = []
        self.image = MetadataImage.empty()
        self._commit([MetadataRecord(cluster=ClusterRecord(cluster_id=CLUSTER_ID))])

    @property
    def partition(self) -> PartitionImage | None:
        return self.image.partition(TOPIC, 0)

    def create_topic(self, replicas: Sequence[int], min_isr: int, leader: int | None = None) -> None:
        """Creates the topics with all replicas in sync. The leader is `leader`, or the first replica."""
        configs = {"min.insync.replicas": str(min_isr), "unclean.leader.election.enable": "false"}
        topics = [(TOPIC, TOPIC_ID), *(NEIGHBOURS if self._options.partitions_per_turn else ())]
        for name, topic_id in sorted(topics, key=lambda topic: topic[1].int):
            self._commit(
                [
                    MetadataRecord(topic=TopicRecord(name=name, topic_id=topic_id.bytes)),
                    *(
                        MetadataRecord(
                            config=ConfigRecord(
                                resource_type=CONFIG_RESOURCE_TYPE_TOPIC, resource_name=name, name=key, value=value
                            )
                        )
                        for key, value in configs.items()
                    ),
                    MetadataRecord(
                        partition=PartitionRecord(
                            topic_id=topic_id.bytes,
                            partition=0,
                            replicas=replicas,
                            isr=replicas,
                            leader=leader or replicas[0],
                        )
                    ),
                ]
            )

    def _commit(self, records: Sequence[MetadataRecord]) -> None:
        if records:
            self._log.append((self.image.end_index, records))
            self.image = replay(self.image, records, self.image.end_index + len(records))
            self._on_commit(self.image)

    def _carry_out(self, decision: Decision[Any]) -> None:
        self._commit(decision.records)
        if decision.sweep is not None:
            self._sweep(decision.sweep)

    # Requests; `answer` is called over the network

    def register(self, request: RegisterBrokerRequest, answer: Callable[..., None]) -> None:
        self._go_on_registering(BrokerRegistration(request, changes_max=self._turn), self._term, request, answer)

    @property
    def _turn(self) -> int:
        return self._options.partitions_per_turn or sweeps.CHANGES_PER_EVENT

    def _go_on_registering(
        self, registration: BrokerRegistration, term: int, request: RegisterBrokerRequest, answer: Callable[..., None]
    ) -> None:
        if term != self._term:
            return
        # A broker's directories are locked, so another process of it proves that the previous one has ended.
        decision = registration.next_part(self.image, session_live=False)
        assert not decision.reply.error_code, decision.reply
        self._carry_out(decision)
        if decision.is_last:
            self._sessions.touch(request.broker_id, self._now_ms)
            self._reply(request.broker_id, answer, decision.reply)
        else:
            self._next_turn(self._go_on_registering, registration, term, request, answer)

    def heartbeat(self, request: BrokerHeartbeatRequest, answer: Callable[..., None]) -> None:
        decision = handle_broker_heartbeat(request, self.image)
        if decision.reply.should_shutdown:
            self._sessions.remove(request.broker_id)
        elif not decision.reply.error_code:
            self._sessions.touch(request.broker_id, self._now_ms)
        self._carry_out(decision)
        self._reply(request.broker_id, answer, decision.reply)

    def alter_partition(self, request: AlterPartitionRequest, answer: Callable[..., None]) -> None:
        decision = handle_alter_partition(request, self.image)
        self._carry_out(decision)
        self._reply(request.broker_id, answer, decision.reply)

    def resign_replicas(self, request: ResignReplicasRequest, answer: Callable[..., None]) -> None:
        decision = handle_resign_replicas(request, self.image)
        self._carry_out(decision)
        self._reply(request.broker_id, answer, decision.reply)

    def report_replica_logs(self, request: ReportReplicaLogsRequest, answer: Callable[..., None]) -> None:
        decision = handle_replica_logs(request, self.image, self._logs)
        self._carry_out(decision)
        self._reply(request.broker_id, answer, decision.reply)

    def watch(self, broker_id: int, start_index: int, deliver: Callable[..., None]) -> None:
        """Sends what a broker lacks, in one piece."""
        records = self.records_from(start_index)
        if records:
            self._reply(broker_id, deliver, start_index, records)

    def records_from(self, start_index: int) -> list[MetadataRecord]:
        """Returns the records that were committed at that index and after it."""
        return [record for base, batch in self._log if base >= start_index for record in batch]

    def _reply(self, broker_id: int, answer: Callable[..., None], *args: Any) -> None:
        self._network.send(CONTROLLER, broker_id, answer, *args)

    # The actions of administrators. The answer is the error of a refused action.

    def reassign(self, replicas: Sequence[int] | None) -> str:
        """Moves the partition to these brokers, or with None cancels that."""
        wanted = PartitionReassignment(topic=TOPIC, partition=0)
        if replicas is not None:
            wanted.replicas.CopyFrom(BrokerIds(broker_ids=replicas))
        request = AlterPartitionReassignmentsRequest(partitions=[wanted])
        decision = handle_alter_partition_reassignments(request, self.image)
        self._carry_out(decision)
        return decision.reply.results[0].error_message

    def elect_preferred(self) -> str:
        """Makes the first replica the leader, if it is in sync."""
        request = ElectLeadersRequest(election_type=ELECTION_TYPE_PREFERRED)
        request.partitions.add(topic=TOPIC, partition=0)
        decision = LeaderElections(request, self._logs).next_part(self.image)
        self._carry_out(decision)
        return decision.reply.results[0].error_message

    # Sessions and sweeps

    def run(self) -> None:
        """Ends sessions from now on."""
        for broker_id in self._sessions.expire(self._now_ms):
            self.end_session(broker_id)
        self._world.after(10 * MS, self.run)

    def end_session(self, broker_id: int) -> None:
        """The broker was silent for too long."""
        self._sessions.remove(broker_id)
        self._carry_out(handle_broker_session_end(broker_id, self.image))

    def fail_over(self) -> None:
        """Another controller takes over: it has the log, and nothing else."""
        self._term += 1
        self._sweeps.clear()
        self._logs = ReplicaLogs()
        self._sessions.renew(self._now_ms)
        self._sweep(Sweep("claim", all_partitions(self.image)))

    def _sweep(self, sweep: Sweep) -> None:
        self._sweeps.append(sweep)
        if len(self._sweeps) == 1:
            self._next_turn(self._go_on_sweeping, sweep)

    def _go_on_sweeping(self, sweep: Sweep) -> None:
        if not self._sweeps or self._sweeps[0] is not sweep:
            return
        self._commit(sweep.next_changes(self.image))
        if sweep.is_done:
            self._sweeps.popleft()
        if self._sweeps:
            self._next_turn(self._go_on_sweeping, self._sweeps[0])

    def _next_turn(self, action: Callable[..., None], *args: Any) -> None:
        self._world.after(self._options.turn_ms * MS, action, *args)

    @property
    def _now_ms(self) -> int:
        return self._world.now_us // MS

"""Tests random events of brokers and elections of leaders against the rules that a partition must always keep.

The model knows which brokers have every committed record. A commit is on exactly the in-sync set. A crash or a failed
disk loses the tail, and a killed process loses nothing. A broker that joins the in-sync set has caught up. Until a
leader is elected uncleanly, every electable broker has everything (KIP-966's promise). If no broker can be elected,
recovery keeps the records of any remaining replica that had everything.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    CONFIG_OPERATION_SET,
    ELECTION_TYPE_PREFERRED,
    ELECTION_TYPE_UNCLEAN,
    AlterConfigsResource,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    ConfigChange,
    ConfigResource,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    IsrChange,
    IsrMember,
    OfflineReplicas,
    PartitionReassignment,
    ReplicaLogEnd,
    ReportOfflineReplicasRequest,
    ReportReplicaLogsRequest,
    ResignedReplicas,
    ResignReplicasRequest,
    UnregisterBrokerRequest,
)
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_TOPIC, BrokerIds
from klamm_controller.metadata.alter_partition import handle_alter_partition, handle_report_offline_replicas
from klamm_controller.metadata.brokers import (
    handle_broker_heartbeat,
    handle_broker_session_end,
    handle_unregister_broker,
)
from klamm_controller.metadata.configs import handle_incremental_alter_configs
from klamm_controller.metadata.elections import LeaderElections
from klamm_controller.metadata.electorate import active_brokers
from klamm_controller.metadata.reassignment import handle_alter_partition_reassignments
from klamm_controller.metadata.resignation import handle_resign_replicas
from klamm_controller.metadata.unclean_recovery import handle_replica_logs
from klamm_server.metadata.entities import NO_LEADER
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.image_records import snapshot_records
from klamm_server.metadata.replay import replay
from tests.support import seeds
from tests.support.whole_decisions import handle_register_broker
from tests.unit.klamm_controller.conftest import Cluster

BROKERS = (1, 2, 3, 4, 5)
PARTITIONS = ((1, 2, 3), (2, 3, 1), (4, 5, 1))
STEPS = [
    "crash",
    "kill",
    "restart",
    "session_end",
    "beat",
    "shut_down",
    "unregister",
    "fail_disk",
    "shrink",
    "expand",
    "commit",
    "reassign",
    "cancel",
    "elect_preferred",
    "elect_unclean",
    "set_min_isr",
    "set_unclean",
    "report_logs",
    "resign",
    "resume",
]
brokers = st.sampled_from(BROKERS)
step = st.tuples(st.sampled_from(STEPS), brokers, st.integers(0, len(PARTITIONS) - 1), brokers)


class World:
    """One topic, and the brokers that have each partition's committed records."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        for broker_id in BROKERS:
            self.cluster.add_broker(broker_id)
        self.cluster.create_by_hand("t", *PARTITIONS)
        self.min_isr = 1
        self.unclean = False
        self.holders = [set(replicas) for replicas in PARTITIONS]
        self.lives = dict.fromkeys(BROKERS, 0)

    @property
    def image(self):
        return self.cluster.image

    @property
    def topic(self):
        return self.cluster.topic("t")

    def step(self, name, broker_id, number, other) -> None:
        before = self.topic.partitions
        changes = self._records(getattr(self, name)(broker_id, number, other))
        for old, new in zip(before, self.topic.partitions, strict=True):
            self._check_step(old, new, changes.get(old.partition, 0), name)
        self.check()

    def _records(self, decision) -> dict[int, int]:
        """Replays a decision. Returns the number of changes of each partition."""
        counts: dict[int, int] = {}
        for record in decision.records if decision is not None else ():
            if record.HasField("partition_change"):
                number = record.partition_change.partition
                counts[number] = counts.get(number, 0) + 1
        if decision is not None:
            self.cluster.replay(decision.records)
            while decision.sweep is not None and not decision.sweep.is_done:
                changes = decision.sweep.next_changes(self.image)
                for record in changes:
                    number = record.partition_change.partition
                    counts[number] = counts.get(number, 0) + 1
                self.cluster.replay(changes)
        return counts

    # Steps of the simulation

    def crash(self, broker_id, number, other):
        for holders in self.holders:
            holders.discard(broker_id)
        return self._register(broker_id)

    def kill(self, broker_id, number, other):
        return self._register(broker_id)

    def restart(self, broker_id, number, other):
        known = self.image.brokers.get(broker_id)
        return self._register(broker_id, previous_broker_epoch=known.broker_epoch if known else 0)

    def _register(self, broker_id, **changes):
        self.lives[broker_id] += 1
        request = self.cluster.broker_request(broker_id, self.lives[broker_id] % 250, **changes)
        return handle_register_broker(request, self.image, session_live=False)

    def session_end(self, broker_id, number, other):
        return handle_broker_session_end(broker_id, self.image)

    def beat(self, broker_id, number, other):
        if broker_id in self.image.brokers:
            return handle_broker_heartbeat(self.cluster.heartbeat(broker_id), self.image)
        return None

    def shut_down(self, broker_id, number, other):
        if broker_id in self.image.brokers:
            return handle_broker_heartbeat(self.cluster.heartbeat(broker_id, want_shutdown=True), self.image)
        return None

    def unregister(self, broker_id, number, other):
        return handle_unregister_broker(UnregisterBrokerRequest(broker_id=broker_id), self.image)

    def fail_disk(self, broker_id, number, other):
        if broker_id not in self.image.brokers:
            return None
        self.holders[number].discard(broker_id)
        return handle_report_offline_replicas(
            ReportOfflineReplicasRequest(
                broker_id=broker_id,
                broker_epoch=self.image.brokers[broker_id].broker_epoch,
                topics=[OfflineReplicas(topic_id=self.topic.topic_id.bytes, partitions=[number])],
            ),
            self.image,
        )

    def resign(self, broker_id, number, other):
        return self._resign(broker_id, resigned=[number])

    def resume(self, broker_id, number, other):
        return self._resign(broker_id, resumed=[number])

    def _resign(self, broker_id, **numbers):
        if broker_id not in self.image.brokers:
            return None
        topic_id = self.topic.topic_id.bytes
        named = {name: [ResignedReplicas(topic_id=topic_id, partitions=value)] for name, value in numbers.items()}
        epoch = self.image.brokers[broker_id].broker_epoch
        return handle_resign_replicas(
            ResignReplicasRequest(broker_id=broker_id, broker_epoch=epoch, **named), self.image
        )

    def shrink(self, broker_id, number, other):
        partition = self.topic.partitions[number]
        return self._alter(number, [each for each in partition.isr if each != broker_id])

    def expand(self, broker_id, number, other):
        partition = self.topic.partitions[number]
        decision = self._alter(number, [*partition.isr, *({broker_id} - set(partition.isr))])
        if decision is not None and ErrorCode.of(decision.reply.partitions[0].error_code) in (
            ErrorCode.NONE,
            ErrorCode.NEW_LEADER_ELECTED,
        ):
            self.holders[number].add(broker_id)
        return decision

    def _alter(self, number, isr):
        partition = self.topic.partitions[number]
        if partition.leader == NO_LEADER:
            return None
        members = [
            IsrMember(broker_id=each, broker_epoch=self.image.brokers[each].broker_epoch)
            for each in isr
            if each in self.image.brokers
        ]
        change = IsrChange(
            topic_id=self.topic.topic_id.bytes,
            partition=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr=members,
        )
        leader = self.image.brokers[partition.leader]
        request = AlterPartitionRequest(
            broker_id=leader.broker_id, broker_epoch=leader.broker_epoch, partitions=[change]
        )
        return handle_alter_partition(request, self.image)

    def commit(self, broker_id, number, other):
        partition = self.topic.partitions[number]
        if partition.leader != NO_LEADER and len(partition.isr) >= min(self.min_isr, len(partition.replicas)):
            self.holders[number] = set(partition.isr)

    def reassign(self, broker_id, number, other):
        change = PartitionReassignment(
            topic="t", partition=number, replicas=BrokerIds(broker_ids=dict.fromkeys((broker_id, other)))
        )
        request = AlterPartitionReassignmentsRequest(partitions=[change])
        return handle_alter_partition_reassignments(request, self.image)

    def cancel(self, broker_id, number, other):
        change = PartitionReassignment(topic="t", partition=number)
        request = AlterPartitionReassignmentsRequest(partitions=[change])
        return handle_alter_partition_reassignments(request, self.image)

    def elect_preferred(self, broker_id, number, other):
        return self._elect(ELECTION_TYPE_PREFERRED)

    def elect_unclean(self, broker_id, number, other):
        return self._elect(ELECTION_TYPE_UNCLEAN)

    def _elect(self, kind):
        elections = LeaderElections(ElectLeadersRequest(election_type=kind), self.cluster.logs)
        return elections.next_part(self.image)

    def report_logs(self, broker_id, number, other):
        """Reports the broker's logs. A broker that has lost records reports a smaller end than a complete one."""
        if broker_id not in self.image.brokers:
            return None
        request = ReportReplicaLogsRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].broker_epoch,
            logs=[
                ReplicaLogEnd(
                    topic_id=self.topic.topic_id.bytes,
                    partition=partition.partition,
                    leader_epoch=partition.leader_epoch,
                    log_end_offset=2 if broker_id in self.holders[partition.partition] else 1,
                )
                for partition in self.topic.partitions
            ],
        )
        return handle_replica_logs(request, self.image, self.cluster.logs)

    def set_min_isr(self, broker_id, number, other):
        self.min_isr = number + 1
        return self._configure("min.insync.replicas", str(self.min_isr))

    def set_unclean(self, broker_id, number, other):
        self.unclean = number == 0
        return self._configure("unclean.leader.election.enable", str(self.unclean).lower())

    def _configure(self, name, value):
        resource = AlterConfigsResource(
            resource=ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name="t"),
            changes=[ConfigChange(name=name, operation=CONFIG_OPERATION_SET, value=value)],
        )
        return handle_incremental_alter_configs(IncrementalAlterConfigsRequest(resources=[resource]), self.image)

    # Invariants of the simulation

    def _check_step(self, old, new, changes, step) -> None:
        assert new.partition_epoch == old.partition_epoch + changes
        assert old.leader_epoch <= new.leader_epoch <= old.leader_epoch + changes
        if new.leader != old.leader:
            assert new.leader_epoch > old.leader_epoch
        if not set(old.replicas) <= set(new.replicas):
            assert new.leader_epoch > old.leader_epoch
        holders = self.holders[old.partition]
        if new.leader not in (NO_LEADER, *old.isr, *old.elr, *holders):
            is_only = old.last_known_elr == old.replicas == (new.leader,)
            assert step in ("elect_unclean", "report_logs") or is_only, (old, new)
            if step == "report_logs" and not self.unclean:
                registered = set(old.last_known_elr) & self.image.brokers.keys()
                assert not holders & registered, f"{new.leader} leads, and {holders & registered} had everything"
        if new.leader not in (NO_LEADER, *old.isr, *old.elr) and new.leader not in holders:
            # From now on, the new leader's records are the committed ones.
            holders.clear()
            holders.add(new.leader)
        elif new.leader not in (NO_LEADER, *old.isr, *old.elr):
            holders.intersection_update({new.leader})
        holders.intersection_update(new.replicas)

    def check(self) -> None:
        active = active_brokers(self.image)
        for partition, holders in zip(self.topic.partitions, self.holders, strict=True):
            isr, elr = set(partition.isr), set(partition.elr)
            assert partition.leader == NO_LEADER or partition.leader in isr, partition
            assert not isr & elr, partition
            assert isr <= active - set(partition.offline_replicas), partition
            able = isr - set(partition.resigned_replicas)
            assert able in (isr, set()), f"a replica that resigned is in sync beside others: {partition}"
            if len(isr) >= min(self.min_isr, len(partition.replicas)):
                assert not elr, partition
            if partition.leader == NO_LEADER:
                assert not isr, partition
                assert not elr & active, "somebody eligible is there, and nobody leads"
            if len(isr) >= min(self.min_isr, len(partition.replicas)):
                assert not partition.last_known_elr, partition
            assert isr | elr <= holders, f"{partition} may be led by somebody who lacks records: only {holders} do not"
        image = self.image
        records = list(snapshot_records(image))
        assert replay(MetadataImage.empty(), records, image.end_index) == image


@settings(max_examples=seeds.examples(150), deadline=None)
@given(st.lists(step, min_size=1, max_size=60))
def test_each_replica_that_may_be_elected_has_every_committed_record(steps):
    world = World()
    for each in steps:
        world.step(*each)

"""A world whose clients use both protocols, so that the group changes its protocol all the time (KIP-848).

The properties are those of `world.py`, with one difference. In a classic group, a member that missed a rebalance still
believes to own its partitions. It cannot commit, so it does not count as an owner.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from klamm.model import TopicPartition
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.groups.topics import FixedTopics
from klamm_coordinator.records.consumer_group_schemas import TopicIdPartition
from klamm_coordinator.records.schemas import GroupMetadataKey, GroupMetadataValue, GroupRecord
from klamm_coordinator.runtime.log_write import LogWrite
from tests.sim.groupsim.classic_client import EitherClient
from tests.sim.groupsim.client import Client
from tests.sim.groupsim.world import TICK_MS, World


class MixedWorld(World):
    """`run` it."""

    clients: list[EitherClient]  # type: ignore[assignment]

    def __init__(self, seed: int, trace: deque[str] | None) -> None:
        self.classic_share = 0.5
        """The probability that a process uses the classic protocol."""
        self.upgrade_count = 0
        self.downgrade_count = 0
        super().__init__(seed, trace)

    def make_client(self, number: int, instance_id: str | None) -> EitherClient:
        return EitherClient(self, number, instance_id)

    def by_id(self, partitions: frozenset[TopicPartition], topics: FixedTopics) -> frozenset[TopicIdPartition]:
        """Returns the partitions of topics that exist, by the ids that they have in `topics`."""
        found = ((topics.get(partition.topic), partition.partition) for partition in partitions)
        return frozenset(TopicIdPartition(info.topic_id, number) for info, number in found if info is not None)

    def check_free(self, taker: Client, partition: TopicIdPartition) -> None:
        """Checks that no other member that may commit believes to own the partition."""
        assert isinstance(taker, EitherClient)
        for other in self.clients:
            if other is not taker and partition in other.owned and self._may_commit(other):
                assert not self._may_commit(taker), f"{taker.member_id} takes {partition} of {other.member_id}"

    def _may_commit(self, client: EitherClient) -> bool:
        epoch = client.generation_id if client.is_classic else client.epoch
        group = self.rules.state.consumer_groups.get(self.group_id)
        if group is not None:
            current = group.currents.get(client.member_id)
            return current is not None and epoch in (current.member_epoch, current.previous_member_epoch)
        classic = self.rules.classic.groups.get(self.group_id)
        return classic is not None and client.member_id in classic.members and epoch == classic.generation_id

    def _append(self, write: LogWrite[GroupRecord]) -> None:
        first, last = (write.records[0], write.records[-1]) if write.records else (None, None)
        self.upgrade_count += first == GroupRecord(GroupMetadataKey(self.group_id), None)
        is_downgrade = last is not None and isinstance(last.value, GroupMetadataValue) and len(write.records) > 1
        self.downgrade_count += is_downgrade
        super()._append(write)

    def _commit(self, client: Client) -> None:
        assert isinstance(client, EitherClient)
        if not client.is_classic:
            super()._commit(client)

    def _check_epochs(self) -> None:
        """Epochs grow while the group is of one type."""
        if self.group_id not in self.rules.state.consumer_groups:
            self._group_epoch = 0
        super()._check_epochs()

    def _heal(self) -> None:
        """Ends all faults. The group must become Stable with members of both protocols, then with classic members only,
        and at last with consumer members only."""
        self.options = replace(
            self.options, request_loss=0, reply_loss=0, write_failure=0, slow_log=0, slow_revocation=0
        )
        self._settle()
        for share in (0.0, 1.0, 0.0):
            self.classic_share = share
            for client in self.clients:
                client.leave()
                for _ in range(20):
                    self._act()
            self._settle()
            assert (self.group_id in self.rules.classic.groups) == (share == 1.0), share
        self._check_converged()

    def _settle(self) -> None:
        for _ in range(200):
            self._act()
        classic = self.rules.classic.groups.get(self.group_id)
        group = self.rules.state.consumer_groups.get(self.group_id)
        if classic is not None:
            assert classic.state is ClassicGroupState.STABLE, classic.state
            members = set(classic.members)
        else:
            assert group is not None
            assert group.state == "Stable", (group.state, group.currents)
            members = set(group.members)
        assert {client.member_id for client in self.clients} == members
        self._check_owners(set() if group is None else set(group.subscribed_topics()))

    def _check_owners(self, subscribed: set[str]) -> None:
        for name in subscribed or {name for client in self.clients for name in client._names}:
            info = self.topics.get(name)
            for number in range(0 if info is None else info.partition_count):
                partition = TopicIdPartition(info.topic_id, number)  # type: ignore[union-attr]
                owners = [client.member_id for client in self.clients if partition in client.owned]
                assert len(owners) == 1, (name, number, owners)

    def _act(self) -> None:
        for client in self.clients:
            self._pass_time(TICK_MS // len(self.clients))
            client.act(self.rng, 0)
            while self.unsent:
                self._decide()

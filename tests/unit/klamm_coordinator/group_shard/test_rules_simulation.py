"""Tests random members with a slow or failing log and crashes against the rules that must always hold.

After every event, `ShardDriver` checks the shard's invariants and that no request is answered twice. This module checks
more. Generations only grow, and a partition has one owner in each of them. An acknowledged offset never goes back. The
durable state is that of the acknowledged records, and a crash loses no promise. At the end, when everything is healthy
again, every request has an answer. Every group is then Stable with every member in it.
"""

from __future__ import annotations

import random

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.group_shard.events import ForgetLosses, LogStart, LogStartsFound, TopicsDeleted
from klamm_coordinator.group_shard.state import GroupShardState

EVENTS = 1_500
GROUPS = ("g1", "g2")
OFFSETS_ONLY = "g3"
PROTOCOLS = ((("range", b"a"),), (("range", b"b"), ("sticky", b"b")), (("sticky", b"c"), ("range", b"c")))
REFUSALS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE)


class Client:
    """A member that behaves like a client library's: it joins until it succeeds, syncs, heartbeats, and commits."""

    def __init__(self, world: World, name: str, group_id: str, instance_id: str | None) -> None:
        self.world = world
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.joining: int | None = None
        self.syncing: int | None = None
        self.protocols = world.rng.choice(PROTOCOLS)

    def poll(self) -> None:
        """Reads the replies and takes the next step."""
        driver = self.world.driver
        if self.joining is not None:
            if self.joining in driver.replies:
                self._on_joined(driver.joined(self.joining))
        elif self.syncing is not None:
            if self.syncing in driver.replies:
                self._on_synced(driver.synced(self.syncing))
        elif self.generation_id < 0:
            self._join()
        else:
            self._work()

    def restart(self) -> None:
        """Restarts the process without leaving the group. The new process has no state."""
        self.member_id, self.generation_id = "", -1
        self.joining = self.syncing = None
        self.protocols = self.world.rng.choice(PROTOCOLS)

    def lose_coordinator(self) -> None:
        """Loses all replies in progress, but keeps the client's state."""
        if self.joining is not None or self.syncing is not None:
            self.generation_id = -1
        self.joining = self.syncing = None

    def leave(self) -> None:
        self.world.driver.leave((self.member_id, self.instance_id), group_id=self.group_id)
        self.restart()

    def _join(self) -> None:
        self.joining = self.world.driver.join(
            self.member_id,
            instance_id=self.instance_id,
            protocols=self.protocols,
            group_id=self.group_id,
            rebalance_timeout_ms=20_000,
            client_id=self.name,
        )

    def _on_joined(self, reply) -> None:
        self.joining = None
        match reply.error:
            case ErrorCode.NONE:
                self.member_id, self.generation_id = reply.member_id, reply.generation_id
                assignments = {member.member_id: b"p%d" % number for number, member in enumerate(reply.members)}
                self.syncing = self.world.driver.sync(
                    reply.generation_id,
                    reply.member_id,
                    {} if reply.skip_assignment else assignments,
                    instance_id=self.instance_id,
                    group_id=self.group_id,
                )
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = reply.member_id
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
                self.restart()

    def _on_synced(self, reply) -> None:
        self.syncing = None
        if reply.error is not ErrorCode.NONE:
            self._on_error(reply.error)
        elif reply.assignment:
            self.world.own(self, reply.assignment)

    def _on_error(self, error: ErrorCode) -> None:
        self.generation_id = -1
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.restart()

    def _work(self) -> None:
        if self.world.rng.random() < 0.4:
            self.world.commit(self)
            return
        error = self.world.driver.heartbeat(
            self.generation_id, self.member_id, instance_id=self.instance_id, group_id=self.group_id
        )
        if error is not ErrorCode.NONE:
            self._on_error(error)


class World:
    def __init__(self, driver, seed: int) -> None:
        self.driver = driver
        self.rng = random.Random(seed)
        instances = (None, None, None, "i1", "i2")
        self.clients = [
            Client(self, f"{group_id}-c{number}", group_id, instance_id)
            for group_id in GROUPS
            for number, instance_id in enumerate(instances)
        ]
        self.generations: dict[str, int] = {}
        self.owners: dict[tuple[str, int, bytes], str] = {}
        """The member that was given a partition of (group, generation)."""
        self.next_offset = 0
        self.log_start = 0
        self.promised: dict[tuple[str, int], int] = {}
        """The greatest offset that a commit of (group, client) was acknowledged with."""
        self.commits: dict[int, tuple[str, int, int]] = {}
        self.twin = GroupShardState()
        """The state that the acknowledged records make. It replays each record once, because the log becomes long."""
        self.told = 0

    def own(self, client: Client, partition: bytes) -> None:
        """Records the partition's owner in this generation.

        The owner is the instance id of a static member, which may return in a generation under another member id.
        """
        owner = client.instance_id or client.member_id
        before = self.owners.setdefault((client.group_id, client.generation_id, partition), owner)
        assert before == owner, (client.group_id, client.generation_id, partition, before, owner)

    def commit(self, client: Client) -> None:
        """Commits a growing offset to a partition that only this client uses."""
        self.next_offset += 1
        partition = self.clients.index(client)
        reply_id = self.driver.commit(
            self.next_offset,
            generation_id=client.generation_id,
            member_id=client.member_id,
            instance_id=client.instance_id,
            partition=partition,
            group_id=client.group_id,
        )
        self.commits[reply_id] = (client.group_id, partition, self.next_offset)

    def check_generations(self) -> None:
        """Checks that generations only grow.

        After a crash they grow from the stored generation, because no later one had any effect.
        """
        generations = {group.group_id: group.generation_id for group in self.driver.rules.classic.groups.values()}
        for group_id, generation_id in generations.items():
            assert generation_id >= self.generations.get(group_id, 0), (group_id, generation_id)
        self.generations = generations

    def run(self, events: int) -> None:
        for _ in range(events):
            self.one_event()
            self.check()

    def one_event(self) -> None:
        rng, driver = self.rng, self.driver
        client = rng.choice(self.clients)
        dice = rng.random()
        if dice < 0.70:
            client.poll()
        elif dice < 0.72 and client.member_id:
            client.leave()
        elif dice < 0.74:
            client.restart()
        elif dice < 0.75:
            client.protocols = rng.choice(PROTOCOLS)
            client.lose_coordinator()
        elif dice < 0.90 and driver.unsent:
            driver.nack(rng.choice(REFUSALS)) if rng.random() < 0.1 else driver.ack()
        elif dice < 0.905:
            driver.crash()
            stored = driver.rules.state.groups
            self.generations = {group_id: value.generation_id for group_id, value in stored.items()}
            for each in self.clients:
                each.lose_coordinator()
        elif dice < 0.907:
            driver.delete_groups(client.group_id)
        elif dice < 0.94:
            self.outsider()
        else:
            driver.advance(rng.randrange(3_000))

    def outsider(self) -> None:
        """Uses a group for its offsets only, or begins to join it and leaves."""
        driver, rng = self.driver, self.rng
        match rng.randrange(8):
            case 0 | 1:
                driver.commit(rng.randrange(100), group_id=OFFSETS_ONLY, partition=rng.randrange(3))
            case 2:
                driver.delete_offsets(("t", rng.randrange(3)), group_id=OFFSETS_ONLY)
            case 3:
                driver.delete_groups(OFFSETS_ONLY)
            case 4:
                driver.join(group_id=OFFSETS_ONLY, session_timeout_ms=rng.choice((1_000, 6_000)))
            case 5:
                driver.commit(1, group_id=OFFSETS_ONLY, topic="doomed")
                driver.step(TopicsDeleted(topics=frozenset({"doomed"})))
            case 6:
                self.log_start += rng.randrange(5)
                found = [
                    LogStart(group_id, TopicPartition("t", rng.randrange(3)), self.log_start)
                    for group_id in (*GROUPS, OFFSETS_ONLY)
                ]
                driver.step(LogStartsFound(found=tuple(found)))
            case 7:
                driver.ask(ForgetLosses(reply_id=0, group_id=rng.choice(GROUPS), topics=frozenset()))

    def check(self) -> None:
        driver = self.driver
        driver.replay(self.twin, after=self.told)
        self.told = len(driver.log)
        assert driver.rules.state == self.twin
        self.check_generations()
        for reply_id in [reply_id for reply_id in self.commits if reply_id in driver.replies]:
            group_id, partition, offset = self.commits.pop(reply_id)
            if driver.replies[reply_id].errors == (ErrorCode.NONE,):
                key = (group_id, partition)
                assert offset > self.promised.get(key, -1), (key, offset, self.promised[key])
                self.promised[key] = offset
        for (group_id, partition), offset in list(self.promised.items()):
            stored = driver.offset(partition=partition, group_id=group_id)
            if stored == -1:  # only deletion removes offsets, and only an empty group may be deleted
                assert driver.rules.state.offsets.of_group(group_id).get(("t", partition)) is None
                del self.promised[group_id, partition]
            else:
                assert stored >= offset, (group_id, partition, stored, offset)

    def heal(self) -> None:
        """Ends all faults. Time passes, writes are acknowledged, and clients behave normally."""
        self.driver.auto_ack = True
        while self.driver.unsent:
            self.driver.ack()
        for client in self.clients:
            # A loaded group knows only the chosen protocol, so a client without it cannot join the group any more.
            client.protocols = PROTOCOLS[1]
        for _ in range(150):
            for client in self.clients:
                client.poll()
                self.check()
            self.driver.advance(500)
        assert self.driver.rules.state == self.driver.replayed()
        for key in self.driver.rules.state.lost.all_keys():
            value = self.driver.rules.state.lost.of_group(key.group_id)[TopicPartition(key.topic, key.partition)]
            assert 0 <= value.lost_count <= value.counted_to <= self.log_start, (key, value)
            assert self.driver.offset(partition=key.partition, group_id=key.group_id) >= 0, (key, value)


@pytest.mark.parametrize("seed", range(12))
def test_random_members_and_log_failures_end_in_stable_groups(make_driver, seed):
    print(f"rerun with: pytest {__file__} -k 'test_random_members_and_log_failures_end_in_stable_groups and {seed}'")
    world = World(make_driver(seed=seed, pending_members_max=100), seed)
    world.driver.auto_ack = False

    world.run(EVENTS)
    world.heal()

    driver = world.driver
    for group in driver.rules.classic.groups.values():
        wanted = ClassicGroupState.EMPTY if group.group_id == OFFSETS_ONLY else ClassicGroupState.STABLE
        assert group.state is wanted, (group.group_id, group.state)
        assert group.pending_joins == {}
    for client in world.clients:
        assert (
            driver.heartbeat(
                client.generation_id,
                client.member_id,
                instance_id=client.instance_id,
                group_id=client.group_id,
            )
            is ErrorCode.NONE
        )
    assert driver.asked == set(driver.replies), "a parked request was forgotten"


@pytest.mark.parametrize("seed", range(12, 18))
def test_a_crash_keeps_groups_members_and_generations(make_driver, seed):
    """Members of a Stable group continue by heartbeat in the same generation, without a rebalance."""
    world = World(make_driver(seed=seed), seed)
    world.run(300)
    world.heal()
    before = {group_id: world.driver.rules.classic.describe(group_id) for group_id in GROUPS}

    world.driver.crash()

    for group_id in GROUPS:
        assert world.driver.rules.classic.describe(group_id) == before[group_id]
    for client in world.clients:
        assert (
            world.driver.heartbeat(
                client.generation_id, client.member_id, instance_id=client.instance_id, group_id=client.group_id
            )
            is ErrorCode.NONE
        )
    world.check()

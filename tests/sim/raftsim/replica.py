"""A replica as a shell would run it: the node, its disk, a clock that is a little wrong, and a state machine.

The state machine is the digest of the log it applied, so equal states mean equal logs, and a snapshot can be checked.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm_controller.raft.effects import Effects, LoadSnapshotChunk, Persist
from klamm_controller.raft.events import DeadlinePassed, Event, LogPersisted, SnapshotChunkLoaded, SnapshotSaved
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import LogEntry, ReplicaKey
from klamm_controller.raft.node import RaftNode
from tests.sim.kit.world import MS
from tests.sim.raftsim.decisions import Crashed, Decision, Loaded, Started, Stepped, Synced
from tests.sim.raftsim.disk import Disk, StateSnapshot
from tests.sim.raftsim.trace import describe_effects, describe_event

if TYPE_CHECKING:
    from tests.sim.raftsim.cluster import Cluster

SNAPSHOT_LOAD_US = 300


def digest(before: int, entry: LogEntry) -> int:
    """The state after an entry."""
    return hash((before, entry.index, entry.term, int(entry.kind), entry.payload))


class Replica:
    """One node with one directory, through all its crashes."""

    def __init__(self, cluster: Cluster, key: ReplicaKey, voters: VoterSet) -> None:
        self.key = key
        self.node: RaftNode | None = None
        """The node. None while the replica is down."""
        self.disk = Disk(cluster.world, cluster.options, voters)
        self.applied_end_index = 0
        self.state = 0
        """The digest of what was applied."""
        self.term = 0
        self.high_watermark = 0
        self.is_leading = False
        self.voters = voters
        """The voters as of the last step."""
        self._cluster = cluster
        self._world = cluster.world
        self._starts = 0
        self._loads: set[LoadSnapshotChunk] = set()
        """Reads of snapshots that the node asked for since it started."""
        self._paused_until_us = 0
        self._timer_us = -1
        """The time of the earliest timer in the heap. -1 if there is none."""
        skew = cluster.options.clock_skew
        self._clock_rate = 1 + skew * (2 * cluster.world.rng.random() - 1)
        self._clock_offset_us = cluster.world.rng.randrange(10_000_000)

    @property
    def is_paused(self) -> bool:
        return self._world.now_us < self._paused_until_us

    def start(self, rng_seed: int | None = None) -> None:
        """Starts the replica from the state on its disk."""
        assert self.node is None
        if rng_seed is None:
            rng_seed = self._world.rng.getrandbits(32)
        self._record(Started(now_us=self._world.now_us, node_id=self.key.node_id, rng_seed=rng_seed))
        self._starts += 1
        self._timer_us = -1
        stored = self.disk.open(self._on_synced, self.crash)
        self.node = RaftNode(
            self.key,
            stored,
            self._cluster.settings,
            random.Random(rng_seed),
            now_ms=self.local_ms(),
            known_nodes=self._cluster.configured_ids,
        )
        self.term, self.high_watermark = self.node.term, self.node.high_watermark
        self.voters = self.node.voters
        self._cluster.on_started(self)
        self._restore(stored.snapshot.end_index)
        self._arm_timer()

    def crash(self, kept_count: int | None = None) -> None:
        """Loses the state that is not on the disk. Of the writes that the disk has not synced, the first `kept_count`
        survive, or a random number."""
        if self.node is None:
            return
        self.node = None
        self._loads.clear()
        self.is_leading = False
        self._starts += 1
        kept_count = self.disk.crash(kept_count)
        self._record(Crashed(now_us=self._world.now_us, node_id=self.key.node_id, kept_count=kept_count))
        self._cluster.on_crashed(self)

    def pause(self, duration_us: int) -> None:
        """Pauses the process as SIGSTOP does. Events that arrive meanwhile wait and are handled late."""
        self._paused_until_us = self._world.now_us + duration_us

    def resume(self) -> None:
        """Ends the pause for new events. Events that wait for its end still do."""
        self._paused_until_us = min(self._paused_until_us, self._world.now_us)

    def step(self, event: Event) -> None:
        """Handles an event and carries out the effects, unless it is down."""
        if self.node is None:
            return
        if self.is_paused:
            self._when_resumed(self._step_if_running, self._starts, event)
            return
        self._world.event_count += 1
        self._record(Stepped(now_us=self._world.now_us, node_id=self.key.node_id, event=event))
        effects = self.node.step(event, self.local_ms())
        if self._cluster.trace is not None:
            self._note(self._cluster.trace, event, effects)
        self.node.check_invariants()
        self._cluster.on_stepped(self, event, effects)
        self._carry_out(effects)
        self._arm_timer()

    def _record(self, decision: Decision) -> None:
        if self._cluster.decisions is not None:
            self._cluster.decisions.append(decision)

    def _note(self, trace: deque[str], event: Event, effects: Effects) -> None:
        assert self.node is not None
        trace.append(f"{self._world.now_us / MS:.3f} {self.key} {self.node.role.value} {describe_event(event)}")
        trace.extend(describe_effects(effects))

    def _carry_out(self, effects: Effects) -> None:
        if effects.persist is not None:
            self.disk.write(effects.persist)
        for message in effects.messages:
            self._cluster.network.send(message)
        if effects.restore is not None:
            self._restore(effects.restore.end_index)
        for entry in effects.committed:
            self._apply(entry)
        for reply in effects.replies:
            self._cluster.on_reply(self, reply)
        for load in effects.load_chunks:
            self._loads.add(load)
            self._world.after(SNAPSHOT_LOAD_US, self._load_if_running, self._starts, load)
        if effects.committed:
            self._maybe_snapshot()

    def _apply(self, entry: LogEntry) -> None:
        assert entry.index == self.applied_end_index, (entry.index, self.applied_end_index)
        self.state = digest(self.state, entry)
        self.applied_end_index += 1
        self._cluster.on_applied(self, entry)

    def _restore(self, end_index: int) -> None:
        image = self.disk.durable
        assert end_index <= image.snapshot.end_index, (end_index, image.snapshot)
        self.applied_end_index = image.snapshot.end_index
        self.state = int(image.snapshot_data[:24]) if image.snapshot_data else 0
        self._cluster.on_restored(self)

    def _maybe_snapshot(self) -> None:
        every = self._cluster.options.snapshot_every_entries
        assert self.node is not None
        if not every or self.applied_end_index - self.disk.written.snapshot.end_index < every:
            return
        snapshot, voters = self.node.snapshot_at(self.applied_end_index)
        # Padded, so that it takes several chunks; the state comes first.
        data = b"%24d" % self.state + bytes(37 * self.applied_end_index % 150)
        write = StateSnapshot(snapshot=snapshot, voters=voters.to_bytes(), data=data)
        self.disk.written.apply(write)
        self.disk.write(write)

    def _on_synced(self, writes: list[Persist | StateSnapshot]) -> None:
        self._record(Synced(now_us=self._world.now_us, node_id=self.key.node_id, write_count=len(writes)))
        persist_ids = [write.persist_id for write in writes if isinstance(write, Persist)]
        if persist_ids:
            self.step(LogPersisted(persist_id=persist_ids[-1]))
        for write in writes:
            if isinstance(write, StateSnapshot):
                self.step(SnapshotSaved(snapshot=write.snapshot))

    def _load_if_running(self, starts: int, load: LoadSnapshotChunk) -> None:
        if starts == self._starts:
            self.load_chunk(load)

    def load_chunk(self, load: LoadSnapshotChunk) -> None:
        """Answers a read that the node asked for."""
        if load not in self._loads:
            return
        self._record(Loaded(now_us=self._world.now_us, node_id=self.key.node_id, load=load))
        image = self.disk.durable
        data = None
        if image.snapshot == load.snapshot:
            data = image.snapshot_data[load.position : load.position + load.max_bytes]
        self.step(
            SnapshotChunkLoaded(
                receiver=load.receiver,
                snapshot=load.snapshot,
                position=load.position,
                data=data,
                is_last=data is not None and load.position + len(data) == len(image.snapshot_data),
            )
        )

    def _arm_timer(self) -> None:
        """Sets a timer if the deadline is earlier than that of the present timer. A timer that fires too early sets a
        new one."""
        if self.node is None:
            return
        deadline_us = self._world_us(self.node.next_deadline_ms())
        if self._timer_us < 0 or deadline_us < self._timer_us:
            self._timer_us = max(deadline_us, self._world.now_us)
            self._world.after(self._timer_us - self._world.now_us, self._on_timer, self._starts)

    def _on_timer(self, starts: int) -> None:
        if starts != self._starts or self.node is None:
            return
        if self._world.now_us < self._timer_us:
            return
        if self.is_paused:
            self._when_resumed(self._on_timer, starts)
            return
        self._timer_us = -1
        if self.local_ms() >= self.node.next_deadline_ms():
            self.step(DeadlinePassed())
        else:
            self._arm_timer()

    def _step_if_running(self, starts: int, event: Event) -> None:
        if starts == self._starts:
            self.step(event)

    def _when_resumed(self, action: Callable[..., None], *args: object) -> None:
        self._world.after(self._paused_until_us - self._world.now_us, action, *args)

    def local_ms(self) -> int:
        """Its own clock."""
        return int(self._world.now_us * self._clock_rate + self._clock_offset_us) // MS

    def _world_us(self, local_ms: int) -> int:
        return int((local_ms * MS - self._clock_offset_us) / self._clock_rate) + 1

"""Runs scripts that move a quorum by hand, a command per line, and writes down what the replicas do.

Messages and writes wait in queues, in order, until a command delivers them. Time moves only by commands. So a script is
a story that a reader can follow, and its trace is the same in every run.

| command                     | what happens                                                                         |
|-----------------------------|--------------------------------------------------------------------------------------|
| `settings name=1 ...`       | replicas that start after this line have these settings                              |
| `cluster 1 2 3 / 4`         | voters and observers start with empty directories                                    |
| `settle`                    | all writes, messages and reads of snapshots happen, until no queue has any           |
| `deliver 2`, `deliver 2 3`  | the messages to 2 (from 3) that are in a queue now arrive                            |
| `drop 2`                    | the messages to 2 that are in a queue now are lost                                   |
| `load`                      | the oldest pending read of a snapshot returns                                        |
| `sync 2`                    | the writes of replica 2 become durable                                               |
| `timeout 1`                 | the time moves to the deadline of replica 1, and only that replica acts on it        |
| `heartbeat 1`               | the same as `timeout 1`, for a leader                                                |
| `wait 500`                  | the time moves by 500 ms; no replica acts on it yet                                  |
| `propose 1 a b`             | replica 1 gets a proposal of entries with these payloads                             |
| `read 1`, `transfer 1 2`    | replica 1 gets the event Read, or TransferLeadership to 2                            |
| `add 1 4`, `remove 1 3`     | replica 1 is asked to make 4 a voter, or to make 3 a voter no longer                 |
| `add 1 3 b`                 | the same, for a replica 3 whose directory is b instead of the first one              |
| `move 1 2 there`            | replica 1 is asked to record `there` as the address of 2                             |
| `snapshot 1`                | replica 1 makes a snapshot of all entries that it has delivered                      |
| `cut 1 2`, `cut 1`, `heal`  | a link (all links of a node) is cut; all links work again                            |
| `crash 1`, `restart 1`      | replica 1 loses all writes that are not durable; it starts again                     |
| `wipe 3 b`                  | replica 3 loses its disk; it starts with empty directory b, and knows the first voters |
| `quietly settle`            | the same as `settle` (or any command), but the trace leaves it out                   |
| `status`                    | the trace gets one line for each replica                                             |
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from klamm_controller.raft.effects import LoadSnapshotChunk, Persist, Reply
from klamm_controller.raft.events import (
    AddVoter,
    DeadlinePassed,
    Event,
    LogPersisted,
    Propose,
    Read,
    RemoveVoter,
    SnapshotChunkLoaded,
    SnapshotSaved,
    TransferLeadership,
    UpdateVoter,
)
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import LogEntry, Message, ReplicaKey, Voter
from klamm_controller.raft.node import RaftNode
from klamm_controller.raft.settings import RaftSettings
from tests.sim.raftsim.disk import Image, StateSnapshot
from tests.sim.raftsim.trace import describe_effects, describe_event

SETTINGS = RaftSettings(
    election_timeout_ms=300,
    heartbeat_interval_ms=100,
    idle_no_op_interval_ms=0,
    retained_entries=0,
    snapshot_chunk_bytes=8,
    observer_timeout_ms=1_000,
)
STEPS_MAX = 2_000


def key(node_id: int, directory_id: str = "") -> ReplicaKey:
    """Returns the key of a node with its first directory, or with another one."""
    return ReplicaKey(node_id, directory_id)


class Scripted:
    """One replica, its disk, and the entries that it delivered."""

    def __init__(self, node_id: int, voters: VoterSet) -> None:
        self.node_id = node_id
        self.directory_id = ""
        self.first_voters = voters
        self.node: RaftNode | None = None
        self.durable = Image(voters)
        self.unsynced: list[Persist | StateSnapshot] = []
        self.delivered: list[LogEntry] = []
        """The entries delivered since the last start or restore."""

    @property
    def running(self) -> RaftNode:
        assert self.node is not None, f"{self.node_id} is down"
        return self.node


class Script:
    """Runs commands. `trace` gets the lines that describe the events since it was last emptied."""

    def __init__(self, settings: RaftSettings = SETTINGS) -> None:
        self.settings = settings
        self.now_ms = 0
        self.replicas: dict[int, Scripted] = {}
        self.under_way: deque[Message] = deque()
        self.loads: deque[tuple[int, LoadSnapshotChunk]] = deque()
        self.trace: list[str] = []
        self.replies: list[Reply] = []
        self._cuts: set[tuple[int, int]] = set()
        self._requests = 0
        self._commands: dict[str, Callable[..., None]] = {
            "settings": self.change_settings,
            "cluster": self.cluster,
            "settle": self.settle,
            "deliver": lambda to, *sender: self.deliver(int(to), *map(int, sender)),
            "drop": lambda to: self.drop(int(to)),
            "load": lambda: self._load(*self.loads.popleft()),
            "sync": lambda at: self.sync(int(at)),
            "timeout": lambda at: self.timeout(int(at)),
            "heartbeat": lambda at: self.timeout(int(at)),
            "wait": lambda ms: self.wait(int(ms)),
            "propose": lambda at, *texts: self.propose(int(at), *texts),
            "read": lambda at: self.read(int(at)),
            "transfer": lambda at, to: self.step(int(at), TransferLeadership(target=key(int(to)))),
            "add": lambda at, new, directory_id="": self.add(int(at), int(new), directory_id),
            "move": lambda at, voter, endpoint: self.move(int(at), int(voter), endpoint),
            "wipe": lambda at, directory_id: self.wipe(int(at), directory_id),
            "remove": lambda at, old: self.remove(int(at), int(old)),
            "snapshot": lambda at: self.snapshot(int(at)),
            "cut": lambda *ids: self.cut(*map(int, ids)),
            "heal": self._cuts.clear,
            "crash": lambda at: self.crash(int(at)),
            "restart": lambda at: self.restart(int(at)),
            "status": self.status,
            "quietly": self.quietly,
        }

    def run(self, command: str) -> list[str]:
        """Runs one command, and returns its events, one line each."""
        self.trace.clear()
        self._run(*command.split())
        return list(self.trace)

    def node(self, node_id: int) -> RaftNode:
        """Returns the node of a replica that runs."""
        return self.replicas[node_id].running

    def change_settings(self, *words: str) -> None:
        changes = {name: int(value) for name, value in (word.split("=") for word in words)}
        self.settings = replace(self.settings, **changes)

    def cluster(self, *words: str) -> None:
        split = words.index("/") if "/" in words else len(words)
        voter_ids = [int(word) for word in words[:split]]
        voters = VoterSet(Voter(key(node_id), f"node-{node_id}") for node_id in voter_ids)
        for node_id in map(int, (word for word in words if word != "/")):
            self.replicas[node_id] = Scripted(node_id, voters if node_id in voter_ids else VoterSet())
            self.restart(node_id)

    def settle(self) -> None:
        for _ in range(STEPS_MAX):
            if not self.advance():
                return
        raise AssertionError("it does not settle")

    def deliver(self, receiver: int, sender: int | None = None) -> None:
        for message in self._take(receiver, sender):
            self._arrive(message)

    def drop(self, receiver: int) -> None:
        for message in self._take(receiver, None):
            self._say(f"{_route(message)} {message.describe()} is lost")

    def sync(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        writes, replica.unsynced = replica.unsynced, []
        for write in writes:
            replica.durable.apply(write)
        persist_ids = [write.persist_id for write in writes if isinstance(write, Persist)]
        if persist_ids:
            self.step(node_id, LogPersisted(persist_id=persist_ids[-1]))
        for write in writes:
            if isinstance(write, StateSnapshot):
                self.step(node_id, SnapshotSaved(snapshot=write.snapshot))

    def timeout(self, node_id: int) -> None:
        self.now_ms = max(self.now_ms, self.node(node_id).next_deadline_ms())
        self.step(node_id, DeadlinePassed())

    def quietly(self, *words: str) -> None:
        self._run(*words)
        self.trace.clear()

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms

    def propose(self, node_id: int, *texts: str) -> None:
        self.step(node_id, Propose(request_id=self._next_request(), payloads=tuple(text.encode() for text in texts)))

    def read(self, node_id: int) -> None:
        self.step(node_id, Read(request_id=self._next_request()))

    def add(self, node_id: int, new: int, directory_id: str = "") -> None:
        voter = Voter(key(new, directory_id), f"node-{new}")
        self.step(node_id, AddVoter(request_id=self._next_request(), voter=voter))

    def move(self, node_id: int, voter_id: int, endpoint: str) -> None:
        voter = Voter(key(voter_id), endpoint)
        self.step(node_id, UpdateVoter(request_id=self._next_request(), voter=voter))

    def remove(self, node_id: int, old: int) -> None:
        self.step(node_id, RemoveVoter(request_id=self._next_request(), key=key(old)))

    def snapshot(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        snapshot, voters = replica.running.snapshot_at(replica.running.delivered_end_index)
        data = f"the state after {snapshot.end_index} entries".encode()
        replica.unsynced.append(StateSnapshot(snapshot=snapshot, voters=voters.to_bytes(), data=data))
        self._say(f"{node_id} writes snapshot {snapshot}")

    def cut(self, *ids: int) -> None:
        """Cuts the links between the named replicas. If only one is named, cuts its links to all others."""
        others = ids if len(ids) > 1 else tuple(self.replicas)
        self._cuts |= {(a, b) for a in ids for b in others if a != b} | {(b, a) for a in ids for b in others if a != b}

    def crash(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        replica.node = None
        replica.unsynced.clear()
        replica.delivered.clear()

    def wipe(self, node_id: int, directory_id: str) -> None:
        replica = Scripted(node_id, self.replicas[node_id].first_voters)
        replica.directory_id = directory_id
        self.replicas[node_id] = replica
        self.restart(node_id)

    def restart(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        known_nodes = [other for other in self.replicas if other != node_id]
        rng = random.Random(node_id)
        replica.node = RaftNode(
            key(node_id, replica.directory_id),
            replica.durable.stored(),
            self.settings,
            rng,
            now_ms=self.now_ms,
            known_nodes=known_nodes,
        )

    def status(self) -> None:
        for node_id, replica in self.replicas.items():
            node = replica.node
            if node is None:
                self._say(f"{node_id} down")
                continue
            voters = ",".join(map(str, node.voters.keys))
            self._say(
                f"{node_id} {node.role.value} term={node.term} leader={node.leader} log={node.log_start_index}.."
                f"{node.log_end_index} hw={node.high_watermark} voters={voters}"
            )

    def step(self, node_id: int, event: Event) -> None:
        """Applies one event to one replica. Writes the effects into the trace, and puts writes and messages into their
        queues."""
        replica = self.replicas[node_id]
        node = replica.running
        role = node.role
        self._say(f"{node_id} {describe_event(event)}")
        effects = node.step(event, self.now_ms)
        node.check_invariants()
        if node.role is not role:
            self._say(f"  becomes {node.role.value}")
        self.trace.extend(describe_effects(effects))
        if effects.persist is not None:
            replica.unsynced.append(effects.persist)
        if effects.restore is not None:
            replica.delivered.clear()
        replica.delivered.extend(effects.committed)
        self.replies.extend(effects.replies)
        self.loads.extend((node_id, load) for load in effects.load_chunks)
        self.under_way.extend(effects.messages)

    def _run(self, name: str, *words: str) -> None:
        self._commands[name](*words)

    def advance(self) -> bool:
        """Carries out the oldest pending event. Returns False if there is none."""
        for node_id, replica in self.replicas.items():
            if replica.unsynced:
                self.sync(node_id)
                return True
        if self.loads:
            self._load(*self.loads.popleft())
            return True
        if self.under_way:
            self._arrive(self.under_way.popleft())
            return True
        return False

    def _arrive(self, message: Message) -> None:
        replica = self.replicas[message.receiver.node_id]
        is_cut = (message.sender.node_id, message.receiver.node_id) in self._cuts
        if replica.node is not None and not is_cut:
            self.step(replica.node_id, message)

    def _take(self, receiver: int, sender: int | None) -> list[Message]:
        taken = [
            message
            for message in self.under_way
            if message.receiver.node_id == receiver and sender in (None, message.sender.node_id)
        ]
        self.under_way = deque(message for message in self.under_way if message not in taken)
        return taken

    def _load(self, node_id: int, load: LoadSnapshotChunk) -> None:
        image = self.replicas[node_id].durable
        data = image.snapshot_data if image.snapshot == load.snapshot else None
        chunk = None if data is None else data[load.position : load.position + load.max_bytes]
        self.step(
            node_id,
            SnapshotChunkLoaded(
                receiver=load.receiver,
                snapshot=load.snapshot,
                position=load.position,
                data=chunk,
                is_last=data is not None and load.position + load.max_bytes >= len(data),
            ),
        )

    def _say(self, line: str) -> None:
        self.trace.append(line)

    def _next_request(self) -> int:
        self._requests += 1
        return self._requests


def _route(message: Message) -> str:
    return f"{message.sender} -> {message.receiver}"

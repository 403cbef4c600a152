"""The replicas together, and the checkers that watch every step of theirs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from klamm_controller.raft.effects import Appended, Effects, ReadReady, Reply
from klamm_controller.raft.events import Event
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import LogEntry, Message, ReplicaKey, Voter
from klamm_controller.raft.node import RaftNode
from klamm_controller.raft.state import RoleName
from tests.sim.kit.world import World
from tests.sim.raftsim.checkers import (
    CommitDurability,
    ElectionSafety,
    LeaderAppendOnly,
    LeaderCompleteness,
    LinearizableReads,
    LogMatching,
    OneChangeAtATime,
    OwnTermCommits,
    PromiseDurability,
    StableLeader,
    StateMachineSafety,
)
from tests.sim.raftsim.decisions import Decision, Wiped
from tests.sim.raftsim.history import History
from tests.sim.raftsim.network import Network
from tests.sim.raftsim.options import Options
from tests.sim.raftsim.replica import Replica
from tests.support.violation import Violation


def first_key(node_id: int) -> ReplicaKey:
    """The first directory of a node."""
    return ReplicaKey(node_id, "a")


def voter(key: ReplicaKey) -> Voter:
    """A replica as a voter."""
    return Voter(key, f"node-{key.node_id}:9093")


class Cluster:
    """A simulated quorum with `options.voter_count` voters and `options.spare_count` observers. Node ids begin with
    1."""

    def __init__(
        self,
        world: World,
        options: Options,
        trace: deque[str] | None = None,
        decisions: list[Decision] | None = None,
    ) -> None:
        """`trace` takes a description of each step (a bounded one keeps the last), `decisions` what happened."""
        self.world = world
        self.trace = trace
        self.decisions = decisions
        self.options = options
        self.settings = options.settings()
        self.network = Network(world, options, self._deliver)
        self.first_voter_ids = tuple(range(1, options.voter_count + 1))
        node_ids = range(1, options.voter_count + options.spare_count + 1)
        self.configured_ids = self.first_voter_ids if options.voter_count > 1 else tuple(node_ids)
        """The replicas that each may ask. A replica that began alone and lost its disk would have only itself to ask:
        where there are several, all are configured with the others' addresses."""
        voters = VoterSet(voter(first_key(node_id)) for node_id in self.first_voter_ids)
        self.history = History(voters)
        self._first_voters = voters
        """The voters with which every log begins."""
        self.on_down: Callable[[Replica], None] = lambda replica: None
        """A function that is called after every crash and every wipe."""
        self.acknowledged_count = 0
        self.read_count = 0
        self._election_safety = ElectionSafety()
        self._leader_completeness = LeaderCompleteness(self.history)
        self._log_matching = LogMatching(self.history)
        self._persist_checkers = (LeaderAppendOnly(), self._log_matching, OneChangeAtATime(self.history))
        self._state_machine_safety = StateMachineSafety(self.history)
        self._commit_durability = CommitDurability(self.history)
        self._own_term_commits = OwnTermCommits()
        self._promises = PromiseDurability()
        self._stable_leader = StableLeader(options.election_timeout_ms)
        self._reads = LinearizableReads()
        self._appended: dict[tuple[ReplicaKey, int], int] = {}
        """(leader, index) -> term of proposals whose client waits."""
        self.replicas: dict[int, Replica] = {}
        """The replica with the present directory of each node, by node id."""
        self.by_key: dict[ReplicaKey, Replica] = {}
        """All replicas by key, including those whose disks were wiped."""
        for node_id in node_ids:
            self._add(first_key(node_id), voters if node_id in self.first_voter_ids else VoterSet())

    def start(self) -> None:
        """Starts all replicas."""
        for replica in self.replicas.values():
            replica.start()

    def wipe(self, node_id: int) -> None:
        """Replaces the node's disk by an empty one. The node starts again as another replica."""
        old = self.replicas[node_id]
        old.crash()
        if self.decisions is not None:
            self.decisions.append(Wiped(now_us=self.world.now_us, node_id=node_id))
        # The lost disk stays in `by_key`, as it was: what it held counted when it was acknowledged.
        replica = self._add(self._new_key(old.key), self._first_voters)
        self.on_down(replica)

    def _new_key(self, old: ReplicaKey) -> ReplicaKey:
        return ReplicaKey(old.node_id, chr(ord(old.directory_id) + 1))

    def leaders(self) -> list[Replica]:
        """Returns the replicas that believe they are leaders."""
        return [
            replica
            for replica in self.replicas.values()
            if replica.node is not None and replica.node.role is RoleName.LEADER
        ]

    def on_started(self, replica: Replica) -> None:
        assert replica.node is not None
        self._promises.on_started(replica, replica.node)
        self._stable_leader.on_started(replica)

    def on_crashed(self, replica: Replica) -> None:
        self._appended = {key: term for key, term in self._appended.items() if key[0] != replica.key}
        self.on_down(replica)

    def on_stepped(self, replica: Replica, event: Event, effects: Effects) -> None:
        """Checks what a step did, before it is carried out."""
        node = replica.node
        assert node is not None
        persist = effects.persist
        if persist is not None:
            for checker in self._persist_checkers:
                checker.on_persist(replica, node, persist)
        for message in effects.messages:
            self._promises.on_message(replica, message)
            self._stable_leader.on_message(replica, node, message)
        self._stable_leader.on_event(replica, node, event)
        # The records that this step writes are part of its outcome, so the image must show them to the checks below.
        if persist is not None:
            replica.disk.written.apply(persist)
            self._log_matching.on_written(replica, persist)
        term, high_watermark, is_leading = node.term, node.high_watermark, node.role is RoleName.LEADER
        if term < replica.term:
            raise Violation(f"term: {replica.key} goes from {replica.term} to {term}")
        if high_watermark < replica.high_watermark:
            raise Violation(f"high watermark: {replica.key} goes from {replica.high_watermark} to {high_watermark}")
        if is_leading:
            self._election_safety.on_leader(replica, node)
            self._leader_completeness.on_leader(replica, node)
        led = is_leading or (replica.is_leading and term == replica.term)
        if led and high_watermark > replica.high_watermark:
            # Also of one that resigns with this step, because the commit was of its removal.
            self._on_commit(replica, node)
        replica.is_leading = is_leading
        replica.term = term
        replica.high_watermark = high_watermark
        replica.voters = node.voters

    def on_applied(self, replica: Replica, entry: LogEntry) -> None:
        self._state_machine_safety.on_applied(replica, entry)
        if self._appended and self._appended.pop((replica.key, entry.index), None) == entry.term:
            self.acknowledged_count += 1
            self._reads.on_acknowledged(entry.index + 1)

    def on_restored(self, replica: Replica) -> None:
        self._state_machine_safety.on_restored(replica)

    def on_read_asked(self, request_id: int) -> None:
        self._reads.on_read_asked(request_id)

    def on_reply(self, replica: Replica, reply: Reply) -> None:
        if isinstance(reply, Appended):
            for index in range(reply.base_index, reply.end_index):
                self._appended[replica.key, index] = reply.term
        elif isinstance(reply, ReadReady):
            self.read_count += 1
            self._reads.on_read_ready(replica, reply)

    def _on_commit(self, replica: Replica, node: RaftNode) -> None:
        self._own_term_commits.on_commit(replica, node)
        self._commit_durability.on_commit(replica, node, self.by_key)
        written = replica.disk.written
        known = self.history.committed_end_index
        if node.high_watermark > known:
            ends = range(known + 1, node.high_watermark + 1)
            self.history.commit([(end, written.term_before(end)) for end in ends], node.term)
            for leader in self.leaders():
                assert leader.node is not None
                if leader.node.term > node.term:
                    self._leader_completeness.check(leader, leader.node)

    def _add(self, key: ReplicaKey, voters: VoterSet) -> Replica:
        replica = Replica(self, key, voters)
        self.replicas[key.node_id] = self.by_key[key] = replica
        return replica

    def _deliver(self, message: Message) -> None:
        replica = self.replicas[message.receiver.node_id]
        if replica.node is not None:
            replica.step(message)

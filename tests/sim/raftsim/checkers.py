"""The rules that must hold, each of them a class. The cluster calls a rule at the moment that it is about.

The rules see the replicas' written and durable images and the messages that they send, not only what the nodes report.
"""

from __future__ import annotations

from klamm_controller.raft.effects import Persist, ReadReady, WriteSnapshotChunk
from klamm_controller.raft.events import Event
from klamm_controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    EntryKind,
    LogEntry,
    Message,
    ReplicaKey,
    VoteResponse,
)
from klamm_controller.raft.node import RaftNode
from klamm_controller.raft.quorum import majority
from klamm_controller.raft.state import RoleName
from tests.sim.raftsim.history import History, Position
from tests.sim.raftsim.replica import Replica
from tests.support.violation import Violation, require


class ElectionSafety:
    """Checks that there is at most one leader per term."""

    def __init__(self) -> None:
        self._leaders: dict[int, ReplicaKey] = {}

    def on_leader(self, replica: Replica, node: RaftNode) -> None:
        leader = self._leaders.setdefault(node.term, replica.key)
        if leader != replica.key:
            raise Violation(f"election safety: {leader} and {replica.key} lead in term {node.term}")


class LeaderAppendOnly:
    """Checks that a leader neither truncates its log nor accepts a snapshot."""

    def on_persist(self, replica: Replica, node: RaftNode, persist: Persist) -> None:
        cuts = persist.log_end_index is not None or persist.snapshot_chunk is not None
        if cuts and node.role is RoleName.LEADER:
            raise Violation(f"leader append-only: {replica.key} leads term {node.term} and cuts its log: {persist}")


class LogMatching:
    """Two logs with an entry of one index and term are equal up to it. No prefix that is committed is ever cut off."""

    def __init__(self, history: History) -> None:
        self._history = history

    def on_persist(self, replica: Replica, node: RaftNode, persist: Persist) -> None:
        if persist.log_end_index is not None and not self._installs(persist.snapshot_chunk):
            require(
                persist.log_end_index >= replica.high_watermark,
                f"committed entries: {replica.key} cuts its log at {persist.log_end_index},"
                f" below its high watermark {replica.high_watermark}",
            )
        if persist.entries:
            position = self._position(replica, persist.entries[0].index)
            for entry in persist.entries:
                position = self._history.append(position, entry)

    def on_written(self, replica: Replica, persist: Persist) -> None:
        """After an installed snapshot only entries remain that follow from it."""
        image = replica.disk.written
        if self._installs(persist.snapshot_chunk) and image.end_index > image.snapshot.end_index:
            snapshot = image.snapshot
            before = self._history.positions[snapshot.end_index, snapshot.term]
            self._history.append(before, image.entries[snapshot.end_index - image.start_index])

    def _installs(self, chunk: WriteSnapshotChunk | None) -> bool:
        return chunk is not None and chunk.is_last

    def _position(self, replica: Replica, end_index: int) -> Position:
        term = replica.disk.written.term_before(end_index)
        where = f"{replica.key} appends after {end_index}/{term}"
        if term is None or (end_index, term) not in self._history.positions:
            raise Violation(f"log matching: {where}, which is in no log")
        return self._history.positions[end_index, term]


class LeaderCompleteness:
    """A leader has all that leaders of earlier terms committed, when it is elected and whenever they commit more."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._checked: set[tuple[ReplicaKey, int]] = set()

    def on_leader(self, replica: Replica, node: RaftNode) -> None:
        if (replica.key, node.term) not in self._checked:
            self._checked.add((replica.key, node.term))
            self.check(replica, node)

    def check(self, replica: Replica, node: RaftNode) -> None:
        end_index = self._history.committed_before_term(node.term)
        if end_index:
            term, _ = self._history.committed[end_index - 1]
            require(
                replica.disk.written.covers(end_index, term),
                f"leader completeness: {replica.key} leads term {node.term} without {end_index}/{term},"
                " which was committed before",
            )


class StateMachineSafety:
    """Checks that all state machines apply the same committed entries, in order. Snapshots must restore the same
    states."""

    def __init__(self, history: History) -> None:
        self._history = history

    def on_applied(self, replica: Replica, entry: LogEntry) -> None:
        if entry.index >= self._history.committed_end_index:
            raise Violation(
                f"state machine safety: {replica.key} applies {entry.describe()}, which no leader committed"
            )
        self._check(replica)

    def on_restored(self, replica: Replica) -> None:
        self._check(replica)

    def _check(self, replica: Replica) -> None:
        end_index = replica.applied_end_index
        if end_index:
            committed = self._history.committed
            if end_index > self._history.committed_end_index or committed[end_index - 1][1] != replica.state:
                raise Violation(
                    f"state machine safety: {replica.key} has another state after {end_index} entries than others"
                )


class CommitDurability:
    """Checks that entries that a leader commits are durable at a majority of its voters. They must agree with those
    that were committed before."""

    def __init__(self, history: History) -> None:
        self._history = history

    def on_commit(self, replica: Replica, node: RaftNode, replicas: dict[ReplicaKey, Replica]) -> None:
        end_index = node.high_watermark
        term = replica.disk.written.term_before(end_index)
        assert term is not None, end_index
        # The step that commits may also append the next voter set, after it has counted the previous one.
        voters = replica.voters
        holders = [
            voter for voter in voters.keys if voter in replicas and replicas[voter].disk.durable.covers(end_index, term)
        ]
        require(
            len(holders) >= majority(len(voters)),
            f"commit durability: {replica.key} commits {end_index}/{term}, durable at {holders} only of {voters}",
        )
        known_end_index = min(end_index, self._history.committed_end_index)
        if known_end_index:
            known_term, _ = self._history.committed[known_end_index - 1]
            require(
                replica.disk.written.covers(known_end_index, known_term),
                f"state machine safety: {replica.key} commits {end_index}/{term} over the committed"
                f" {known_end_index}/{known_term}",
            )


class OwnTermCommits:
    """Checks that a leader commits by counting only the replicas of entries of its own term. This is the second half of
    leader completeness. Breaking this rule loses an entry only if a rival of a term in between is elected just then
    (Figure 8 of the paper). Chance alone does so about once in hundreds of seeds. The rule itself is therefore checked,
    and not only its consequence."""

    def on_commit(self, replica: Replica, node: RaftNode) -> None:
        term = replica.disk.written.term_before(node.high_watermark)
        require(
            term == node.term,
            f"own term: {replica.key} leads term {node.term} and commits {node.high_watermark}/{term} by counting",
        )


class PromiseDurability:
    """Checks that votes and acknowledgements are sent only after their promises are durable, and are never broken."""

    def __init__(self) -> None:
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._terms: dict[ReplicaKey, int] = {}
        """The greatest term in which each replica promised something."""

    def on_message(self, replica: Replica, message: Message) -> None:
        if type(message) is AppendResponse:
            if message.rejected:
                return
            durable = replica.disk.durable
            end_index = max(durable.end_index, durable.snapshot.end_index)
            if durable.hard_state.term <= message.term and end_index < message.end_index:
                raise Violation(
                    f"promise durability: {replica.key} acknowledges {message.end_index}, durable is {end_index}"
                )
        elif type(message) is VoteResponse:
            if message.pre_vote or not message.granted:
                return
            self._check_vote(replica, message)
        else:
            return
        self._terms[replica.key] = max(message.term, self._terms.get(replica.key, 0))

    def on_started(self, replica: Replica, node: RaftNode) -> None:
        promised = self._terms.get(replica.key, 0)
        require(node.term >= promised, f"term: {replica.key} promised in {promised}, and restarts in {node.term}")

    def _check_vote(self, replica: Replica, vote: VoteResponse) -> None:
        state = replica.disk.durable.hard_state
        require(
            state.term > vote.term or (state.term == vote.term and state.voted_for == vote.receiver),
            f"promise durability: {replica.key} votes for {vote.receiver} in {vote.term}, durable is {state}",
        )
        candidate = self._votes.setdefault((replica.key, vote.term), vote.receiver)
        require(
            candidate == vote.receiver,
            f"one vote per term: {replica.key} votes for {candidate} and {vote.receiver} in {vote.term}",
        )


class StableLeader:
    """Checks that a leader grants no pre-vote. The same holds for a replica that heard from the leader of its term
    within the election time-out (KIP-996)."""

    def __init__(self, election_timeout_ms: int) -> None:
        self._election_timeout_ms = election_timeout_ms
        self._heard: dict[ReplicaKey, tuple[int, int]] = {}
        """(term, local time) of the last word of a leader."""

    def on_event(self, replica: Replica, node: RaftNode, event: Event) -> None:
        if type(event) is AppendRequest and event.term == node.term:
            self._heard[replica.key] = (event.term, replica.local_ms())

    def on_message(self, replica: Replica, node: RaftNode, message: Message) -> None:
        if type(message) is not VoteResponse or not message.pre_vote or not message.granted:
            return
        term, heard_ms = self._heard.get(replica.key, (-1, 0))
        is_live = term == node.term and replica.local_ms() - heard_ms < self._election_timeout_ms
        require(
            node.role is not RoleName.LEADER and not is_live,
            f"stable leader: {replica.key} grants {message.receiver} a pre-vote in {node.term} in spite of a leader",
        )

    def on_started(self, replica: Replica) -> None:
        self._heard.pop(replica.key, None)


class OneChangeAtATime:
    """Checks that consecutive voter sets differ by at most one voter. The previous set must be committed before a
    leader appends the next."""

    def __init__(self, history: History) -> None:
        self._history = history

    def on_persist(self, replica: Replica, node: RaftNode, persist: Persist) -> None:
        for entry in persist.entries:
            if entry.kind is EntryKind.VOTERS and entry.term == node.term and node.role is RoleName.LEADER:
                self._check(replica, entry)

    def _check(self, replica: Replica, entry: LogEntry) -> None:
        term = replica.disk.written.term_before(entry.index)
        assert term is not None, entry
        before = self._history.positions[entry.index, term]
        after = self._history.positions[entry.index + 1, entry.term]
        require(
            before.voters_end_index <= replica.high_watermark,
            f"membership: {replica.key} changes the voters at {entry.index}, the change before"
            f" {before.voters_end_index} is not committed",
        )
        changed = set(before.voters.keys) ^ set(after.voters.keys)
        require(len(changed) <= 1, f"membership: {replica.key} changes {sorted(changed)} at once")


class LinearizableReads:
    """A read is served from a state that has everything acknowledged, written or read, before it was asked for."""

    def __init__(self) -> None:
        self._acknowledged_end_index = 0
        self._floors: dict[int, int] = {}

    def on_acknowledged(self, end_index: int) -> None:
        self._acknowledged_end_index = max(self._acknowledged_end_index, end_index)

    def on_read_asked(self, request_id: int) -> None:
        self._floors[request_id] = self._acknowledged_end_index

    def on_read_ready(self, replica: Replica, reply: ReadReady) -> None:
        floor = self._floors.pop(reply.request_id)
        require(
            replica.applied_end_index >= max(floor, reply.end_index),
            f"linearizable reads: {replica.key} serves read {reply.request_id} from {replica.applied_end_index},"
            f" {floor} was acknowledged before",
        )
        self.on_acknowledged(replica.applied_end_index)

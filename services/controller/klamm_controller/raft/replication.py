"""How a leader replicates its log: it sends entries in a pipeline, snapshots in chunks, and heartbeats.

Lost messages need no timers. A heartbeat carries the position up to which the leader believes to have sent. A replica
that missed entries rejects it, and the leader probes again from where the logs agree.

Observers are replicas that are in no voter set. An observer attaches itself with an AttachRequest, and no majority
counts it. The leader forgets an observer that stops answering. A removed voter is an observer until the leader forgets
it, so that it learns of its removal.
"""

from __future__ import annotations

from klamm_controller.raft.effects import LoadSnapshotChunk
from klamm_controller.raft.events import SnapshotChunkLoaded
from klamm_controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    LogEntry,
    ReplicaKey,
    SnapshotChunkRequest,
    SnapshotChunkResponse,
)
from klamm_controller.raft.progress import Progress, ProgressState
from klamm_controller.raft.read_index import ReadIndex
from klamm_controller.raft.snapshot import SnapshotSending
from klamm_controller.raft.state import NodeState


class Replication:
    """Sends one leader's log to all other replicas."""

    def __init__(self, state: NodeState, reads: ReadIndex) -> None:
        self.peers: dict[ReplicaKey, Progress] = {}
        """The progress of each voter and observer, except this replica."""
        self._state = state
        self._reads = reads
        for voter in state.voters.keys:
            if voter != state.me:
                self.peers[voter] = self._new_progress(state.log.end_index)

    def attach(self, key: ReplicaKey, end_index: int) -> None:
        """Starts to send to a replica that asked for it, and whose log ends at `end_index`."""
        state = self._state
        progress = self.peers.get(key)
        if progress is None:
            if sum(peer not in state.voters for peer in self.peers) >= state.settings.observers_max:
                return
            progress = self.peers[key] = self._new_progress(min(end_index, state.log.end_index))
        elif progress.state is ProgressState.REPLICATE:
            progress.become_probe(progress.match_end_index)
        progress.last_contact_ms = state.now_ms
        progress.allow_probe()
        self._send(key, progress, heartbeat=True)

    def forget_silent_observers(self) -> None:
        """Forgets the observers that have not answered within the observer time-out."""
        state = self._state
        limit_ms = state.now_ms - state.settings.observer_timeout_ms
        silent = [
            key for key, peer in self.peers.items() if peer.last_contact_ms < limit_ms and key not in state.voters
        ]
        for key in silent:
            del self.peers[key]

    def broadcast(self, *, heartbeat: bool = False, voters_only: bool = False) -> None:
        """Sends all replicas, or only the voters, the entries that they may receive now. With `heartbeat`, sends each
        at least one message."""
        for key, progress in self.peers.items():
            if not voters_only or key in self._state.voters:
                self._send(key, progress, heartbeat=heartbeat)

    def on_contact(self, key: ReplicaKey, read_round: int) -> Progress | None:
        """Notes that a replica answered in this term. Returns its progress, or None if the leader has forgotten the
        replica."""
        progress = self.peers.get(key)
        if progress is not None:
            progress.last_contact_ms = self._state.now_ms
            progress.read_round = max(progress.read_round, read_round)
        return progress

    def on_accepted(self, key: ReplicaKey, end_index: int) -> bool:
        """Notes that a replica's log is durable and equal up to `end_index`. Returns True if its `match_end_index` has
        grown."""
        progress = self.peers[key]
        assert end_index <= self._state.log.end_index, (key, end_index, self._state.log.end_index)
        advanced = progress.on_accepted(end_index)
        if progress.state is ProgressState.PROBE or (
            progress.state is ProgressState.SNAPSHOT and progress.match_end_index >= self._state.log.start_index
        ):
            progress.become_replicate()
        self._send(key, progress)
        return advanced

    def on_rejected(self, response: AppendResponse) -> None:
        """Probes again from an earlier position, the last one at which both logs may agree. Ignores rejections that are
        out of date."""
        progress = self.peers[response.sender]
        if progress.state is ProgressState.SNAPSHOT or progress.is_stale_rejection(response.base_index):
            return
        next_index, _ = self._state.log.last_position(response.end_index, response.last_term)
        progress.become_probe(next_index)
        self._send(response.sender, progress)

    def on_chunk_needed(self, response: SnapshotChunkResponse) -> None:
        """Loads the chunk that the receiver of a snapshot needs next."""
        progress = self.peers[response.sender]
        sending = progress.snapshot
        if sending is None or sending.snapshot != response.snapshot:
            return
        if sending.on_needed(response.position, self._state.now_ms):
            self._load_chunk(response.sender, sending)

    def on_chunk_loaded(self, event: SnapshotChunkLoaded) -> None:
        """Sends a loaded chunk, unless the replica needs another position or snapshot by now. Starts over if the
        snapshot was replaced."""
        progress = self.peers.get(event.receiver)
        sending = progress.snapshot if progress is not None else None
        if progress is None or sending is None:
            return
        if (sending.snapshot, sending.position) != (event.snapshot, event.position):
            return
        if event.data is None:
            self._begin_snapshot(event.receiver, progress)
            return
        state = self._state
        state.outbox.send(
            SnapshotChunkRequest(
                sender=state.me,
                receiver=event.receiver,
                term=state.term,
                snapshot=event.snapshot,
                voters=state.log.voters.at(event.snapshot.end_index).to_bytes(),
                position=event.position,
                data=event.data,
                is_last=event.is_last,
                read_round=self._reads.round,
            )
        )

    def check_invariants(self) -> None:
        """Asserts that the leader does not send to itself, and that no peer has more entries than the leader."""
        state = self._state
        assert state.me not in self.peers, state.me
        for key, progress in self.peers.items():
            progress.check_invariants()
            assert progress.next_index <= state.log.end_index, (key, progress.next_index, state.log.end_index)

    def _new_progress(self, next_index: int) -> Progress:
        settings = self._state.settings
        return Progress(
            next_index=next_index,
            now_ms=self._state.now_ms,
            inflight_messages_max=settings.inflight_messages_max,
            inflight_bytes_max=settings.inflight_bytes_max,
        )

    def _send(self, key: ReplicaKey, progress: Progress, *, heartbeat: bool = False) -> None:
        """Sends the entries that the replica may receive now. With `heartbeat`, sends a message even if there is
        nothing new."""
        if progress.state is ProgressState.SNAPSHOT:
            if heartbeat:
                self._keep_snapshot_going(key, progress)
            return
        if self._is_gone(progress.next_index):
            self._begin_snapshot(key, progress)
        elif progress.state is ProgressState.PROBE:
            # Probes carry no entries, because a replica would reject them until the logs agree.
            if heartbeat or progress.may_send:
                self._send_append(key, progress, progress.next_index, ())
        else:
            sent = self._send_entries(key, progress)
            if not sent and (heartbeat or progress.sent_high_watermark < self._state.high_watermark):
                self._send_append(key, progress, progress.next_index, ())

    def _is_gone(self, next_index: int) -> bool:
        """Returns True if the log no longer has the entries from `next_index` on, or the term before them."""
        log = self._state.log
        return next_index < log.start_index or log.term_before(next_index) is None

    def _send_entries(self, key: ReplicaKey, progress: Progress) -> bool:
        """Sends entries up to the limits in flight. Returns True if any were sent."""
        log = self._state.log
        sent = False
        while progress.may_send and progress.next_index < log.end_index:
            entries = log.entries_from(progress.next_index, self._state.settings.append_bytes_max)
            self._send_append(key, progress, progress.next_index, entries)
            sent = True
        return sent

    def _send_append(self, key: ReplicaKey, progress: Progress, base_index: int, entries: tuple[LogEntry, ...]) -> None:
        state = self._state
        prev_term = state.log.term_before(base_index)
        assert prev_term is not None, (key, base_index)
        state.outbox.send(
            AppendRequest(
                sender=state.me,
                receiver=key,
                term=state.term,
                base_index=base_index,
                prev_term=prev_term,
                entries=entries,
                high_watermark=state.high_watermark,
                read_round=self._reads.round,
            )
        )
        progress.on_sent(entries, state.high_watermark)

    def _begin_snapshot(self, key: ReplicaKey, progress: Progress) -> None:
        sending = SnapshotSending(self._state.log.snapshot, self._state.now_ms)
        progress.become_snapshot(sending)
        self._load_chunk(key, sending)

    def _keep_snapshot_going(self, key: ReplicaKey, progress: Progress) -> None:
        """Sends a heartbeat at index 0, which every log accepts. Loads the current chunk again if it was lost."""
        assert progress.snapshot is not None
        state = self._state
        state.outbox.send(
            AppendRequest(
                sender=state.me,
                receiver=key,
                term=state.term,
                base_index=0,
                prev_term=0,
                entries=(),
                high_watermark=0,
                read_round=self._reads.round,
            )
        )
        if progress.snapshot.on_timeout(state.now_ms, state.settings.election_timeout_ms):
            self._load_chunk(key, progress.snapshot)

    def _load_chunk(self, key: ReplicaKey, sending: SnapshotSending) -> None:
        self._state.outbox.load_chunks.append(
            LoadSnapshotChunk(
                receiver=key,
                snapshot=sending.snapshot,
                position=sending.position,
                max_bytes=self._state.settings.snapshot_chunk_bytes,
            )
        )

"""The MetadataLog (log/port.py) of a quorum of one or more controllers. It is the shell around a RaftNode.

    events -> RaftNode.step -> effects -> store, other controllers, listener

This module owns the timer, the order in which effects are carried out, and the conversion between Raft's entries and
batches of metadata records. Everything runs on one event loop. Only the store's thread waits for the disk.

Invariants: `_delivered_end_index` is the index after the last record that was delivered to the listener. While this
node decides, `_end_index` is the index after the last record that it has appended.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.wire.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from klamm_controller.log.port import LogListener
from klamm_controller.log.quorum import Quorum
from klamm_controller.log.raft_metrics import COMMIT_SECONDS, watch_quorum
from klamm_controller.log.raft_store import RaftStore
from klamm_controller.log.snapshot import snapshot_bytes
from klamm_controller.log.snapshot_assembler import SnapshotAssembler
from klamm_controller.log.snapshot_saving import SnapshotSaving
from klamm_controller.log.store_writer import OnFailure, StoreWriter
from klamm_controller.log.voter_requests import VoterRequests
from klamm_controller.raft.effects import Appended, LoadSnapshotChunk, ReadReady, Rejected, Reply
from klamm_controller.raft.events import (
    DeadlinePassed,
    Event,
    LogPersisted,
    Propose,
    Read,
    SnapshotChunkLoaded,
    SnapshotSaved,
    TransferLeadership,
)
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import EntryKind, LogEntry, Message, ReplicaKey, SnapshotId
from klamm_controller.raft.node import RaftNode
from klamm_controller.raft.raft_log import StoredState
from klamm_controller.raft.settings import RaftSettings
from klamm_controller.raft.state import RoleName
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.awaitable_flag import AwaitableFlag
from klamm_server.runtime.clock import Clock

log = logging.getLogger(__name__)

NotControllerError = EXCEPTIONS[ErrorCode.NOT_CONTROLLER]


class QuorumLog:
    """One replica of the metadata log, from `start` to `stop`.

    `stored` is the content of `store`, or None if its log has not begun. `end_index` is the index after the last record
    in the stored snapshot. `send` sends messages to other controllers and may drop them. `address_of` returns their
    addresses. `known_nodes` are the ids of the controllers that this replica asks for the leader."""

    def __init__(
        self,
        store: RaftStore,
        stored: StoredState | None,
        *,
        me: ReplicaKey,
        end_index: int,
        settings: RaftSettings,
        snapshot_interval_bytes: int,
        send: Callable[[Message], None],
        address_of: Callable[[ReplicaKey], str] = lambda key: "",
        known_nodes: Sequence[int] = (),
        clock: Clock,
        rng: random.Random,
        on_failure: OnFailure,
    ) -> None:
        self._store = store
        self._settings = settings
        self._snapshot_interval_bytes = snapshot_interval_bytes
        self._send = send
        self._clock = clock
        self._on_failure = on_failure
        self._writer = StoreWriter(
            store, on_persisted=self._on_persisted, on_full=self._on_full_disk, on_failure=on_failure
        )
        self._me = me
        self._known_nodes = known_nodes
        self._rng = rng
        stored = stored or StoredState.empty(VoterSet())
        self._node = self._make_node(stored)
        watch_quorum(lambda: self._node, clock.monotonic_ms)
        self._listener: LogListener | None = None
        self._stopped = False
        self._handing_over = False
        self._claimed_term: int | None = None
        """The term in which this node decides, or None while it does not decide."""
        self._delivered_end_index = self._end_index = end_index
        self._applied_index = stored.snapshot.end_index
        """The index after the last of Raft's entries that was delivered to the listener."""
        self._applied_term = stored.snapshot.term
        self._own: deque[tuple[int, MetadataBatch, int]] = deque()
        """The uncommitted batches of this node, as (Raft index, batch, time of the append in milliseconds). They are
        kept so that this node need not parse them again when they commit."""
        self._assembler = SnapshotAssembler()
        self._bytes_since_snapshot = 0
        self._is_saving = False
        self._request_ids = itertools.count()
        self._reads: dict[int, asyncio.Future[None]] = {}
        self._voter_requests = VoterRequests()
        self.quorum = Quorum(
            node=lambda: self._node,
            step=self._step,
            decides=lambda: self.is_leader,
            requests=self._voter_requests,
            request_ids=self._request_ids,
            address_of=address_of,
            clock=clock,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._leadership_changed = asyncio.Event()
        self.in_step = AwaitableFlag()
        """A flag that is set while this node is the deciding leader. It is also set while this node follows a
        leader and has all entries that were committed when it began to follow."""

    @property
    def is_leader(self) -> bool:
        return self._claimed_term is not None and not self._handing_over

    @property
    def term(self) -> int:
        return self._node.term

    def begin(self, voters: VoterSet) -> None:
        """Starts a new log with `voters` as its first voters. Must be called before `start`."""
        assert self._listener is None, "the log has been started"
        self._store.begin(voters)
        self._node = self._make_node(self._store.load())

    def start(self, listener: LogListener) -> None:
        self._listener = listener
        self._step(DeadlinePassed())

    def receive(self, message: Message) -> None:
        """Handles a message of another controller. Drops messages that come before `start` or after `stop`."""
        if self._listener is not None and not self._stopped:
            self._step(message)

    def append(self, records: Sequence[MetadataRecord]) -> MetadataBatch:
        if not self.is_leader:
            raise NotControllerError
        batch = MetadataBatch(
            term=self.term, base_index=self._end_index, end_index=self._end_index + len(records), records=records
        )
        proposal = Propose(request_id=next(self._request_ids), payloads=(batch.SerializeToString(deterministic=True),))
        (reply,) = [reply for reply in self._step(proposal) if reply.request_id == proposal.request_id]
        if isinstance(reply, Rejected):
            raise reply.code.exception()
        assert isinstance(reply, Appended), reply
        self._own.append((reply.base_index, batch, self._clock.monotonic_ms()))
        self._end_index = batch.end_index
        return batch

    async def confirm_leadership(self) -> None:
        if not self.is_leader:
            raise NotControllerError
        request_id = next(self._request_ids)
        confirmed = self._reads[request_id] = asyncio.get_running_loop().create_future()
        self._step(Read(request_id=request_id))
        try:
            await confirmed
        finally:
            self._reads.pop(request_id, None)

    def save_snapshot(self, image: MetadataImage) -> None:
        assert image.end_index == self._delivered_end_index, (image.end_index, self._delivered_end_index)
        snapshot, voters = self._node.snapshot_at(self._applied_index)
        self._bytes_since_snapshot = 0
        self._is_saving = True
        self._advance_saving(SnapshotSaving(self._store, snapshot, voters, snapshot_bytes(image, snapshot.term)))

    async def stop(self) -> None:
        if self._listener is not None:
            await self._hand_over()
        self._writer.stop_waiting()
        await self._writer.drain()
        self._stopped = True
        self.quorum.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._resign()
        for read in self._reads.values():
            if not read.done():
                read.set_exception(NotControllerError())
        # The last writes may have caused further writes.
        await self._writer.drain()
        self._writer.close()
        self._store.close()

    async def _hand_over(self) -> None:
        """Hands the leadership over. Waits until another controller leads, for at most two election time-outs."""
        others = [key for key in self._node.voters.keys if key != self._node.me]
        if self._node.role is not RoleName.LEADER or not others:
            return
        self._handing_over = True
        self._step(TransferLeadership())
        try:
            async with asyncio.timeout(2 * self._settings.election_timeout_ms / 1000):
                while self._node.leader in (None, self._node.me):
                    self._leadership_changed.clear()
                    await self._leadership_changed.wait()
        except TimeoutError:
            log.warning("could not hand over the leadership, term=%d", self.term)

    def _make_node(self, stored: StoredState) -> RaftNode:
        # A single voter need not wait for a leader's message, so its first time-out counts as passed.
        patience_ms = 2 * self._settings.election_timeout_ms if stored.snapshot_voters.keys == (self._me,) else 0
        now_ms = self._clock.monotonic_ms() - patience_ms
        return RaftNode(self._me, stored, self._settings, self._rng, now_ms=now_ms, known_nodes=self._known_nodes)

    def _step(self, event: Event) -> tuple[Reply, ...]:
        """Applies an event and carries out all its effects. A failure ends the process, because the state is then
        unknown."""
        try:
            return self._apply(event)
        except Exception as error:
            self._on_failure(f"the metadata log failed at {type(event).__name__}", error)
            raise

    def _apply(self, event: Event) -> tuple[Reply, ...]:
        effects = self._node.step(event, self._clock.monotonic_ms())
        if effects.persist is not None:
            self._writer.write(effects.persist)
            if effects.persist.snapshot_chunk is not None:
                self._assembler.feed(effects.persist.snapshot_chunk)
        for message in effects.messages:
            self._send(message)
        if not self._still_decides():
            # Resign first, because entries that commit from now on may not be those that this node appended.
            self._resign()
        if effects.restore is not None:
            self._restore(effects.restore)
        if effects.committed:
            self._deliver(effects.committed)
        for reply in effects.replies:
            self._answer(reply)
        for load in effects.load_chunks:
            self._load_chunk(load)
        if effects.leadership is not None:
            self._note_leadership()
        self._maybe_claim()
        self.in_step.set(self._claimed_term is not None or self._node.follows_in_step)
        self._arm_timer()
        return effects.replies

    def _on_persisted(self, persist_id: int) -> None:
        self._step(LogPersisted(persist_id=persist_id))

    def _on_full_disk(self) -> None:
        """Hands the leadership over on a full disk. A replica with a full disk can neither acknowledge entries nor be
        elected."""
        if self._node.role is RoleName.LEADER:
            self._step(TransferLeadership())

    def _advance_saving(self, saving: SnapshotSaving) -> None:
        def on_advanced(is_whole: bool) -> None:
            if is_whole:
                self._is_saving = False
                log.info("snapshot written %s", saving.snapshot)
                self._step(SnapshotSaved(snapshot=saving.snapshot))
            else:
                self._advance_saving(saving)

        self._writer.run(saving.advance, on_advanced)

    def _restore(self, snapshot: SnapshotId) -> None:
        assert self._listener is not None
        image = self._assembler.take(snapshot)
        log.info("installed a snapshot of the leader, %s", snapshot)
        self._delivered_end_index = self._end_index = image.end_index
        self._applied_index, self._applied_term = snapshot.end_index, snapshot.term
        self._bytes_since_snapshot = 0
        self._voter_requests.give_up()
        self._listener.on_restored(image)

    def _deliver(self, entries: Sequence[LogEntry]) -> None:
        assert self._listener is not None
        batches: list[MetadataBatch] = []
        for entry in entries:
            assert entry.index == self._applied_index, (entry.index, self._applied_index)
            if entry.term != self._applied_term:
                self._notify_committed(batches)
                batches = []
                self._applied_term = entry.term
                self._listener.on_new_term()
            if entry.kind is EntryKind.DATA:
                batches.append(self._batch_of(entry))
            self._voter_requests.on_committed(entry)
            self._applied_index = entry.index + 1
            self._bytes_since_snapshot += entry.size_bytes
        self._notify_committed(batches)
        # Waiting for as many bytes as the last snapshot has keeps the cost of snapshots below that of the log.
        interval_bytes = max(self._snapshot_interval_bytes, self._store.snapshot_size_bytes)
        if self._bytes_since_snapshot >= interval_bytes and not self._is_saving:
            self._listener.on_snapshot_due()

    def _notify_committed(self, batches: Sequence[MetadataBatch]) -> None:
        assert self._listener is not None
        if batches:
            assert batches[0].base_index == self._delivered_end_index, (
                batches[0].base_index,
                self._delivered_end_index,
            )
            self._delivered_end_index = batches[-1].end_index
            if self._claimed_term is None:
                self._end_index = self._delivered_end_index
            self._listener.on_committed(batches)

    def _batch_of(self, entry: LogEntry) -> MetadataBatch:
        if self._own and self._own[0][0] == entry.index:
            _, batch, appended_ms = self._own.popleft()
            assert batch.term == entry.term, (batch.term, entry.term)
            COMMIT_SECONDS.observe((self._clock.monotonic_ms() - appended_ms) / 1000)
            return batch
        return MetadataBatch.FromString(entry.payload)

    def _answer(self, reply: Reply) -> None:
        if not isinstance(reply, ReadReady):
            self._voter_requests.on_reply(reply)
        read = self._reads.get(reply.request_id)
        if read is None or read.done():
            return
        if isinstance(reply, ReadReady):
            read.set_result(None)
        elif isinstance(reply, Rejected):
            read.set_exception(reply.code.exception())

    def _load_chunk(self, load: LoadSnapshotChunk) -> None:
        def on_loaded(chunk: tuple[bytes, bool] | None) -> None:
            data, is_last = chunk or (None, False)
            event = SnapshotChunkLoaded(
                receiver=load.receiver, snapshot=load.snapshot, position=load.position, data=data, is_last=is_last
            )
            self._step(event)

        self._writer.run(lambda: self._store.read_chunk(load.snapshot, load.position, load.max_bytes), on_loaded)

    def _note_leadership(self) -> None:
        self._leadership_changed.set()
        timeout_ms = self._node.election_timeout_ms
        log.info(
            "the term or leader of the quorum changed, term=%d leader=%d election_timeout_ms=%d",
            self.term,
            self.quorum.leader_id,
            timeout_ms,
        )

    def _still_decides(self) -> bool:
        """True while this node still leads in the term that it has claimed."""
        return self._node.role is RoleName.LEADER and self._node.term == self._claimed_term

    def _maybe_claim(self) -> None:
        """Starts to decide when an entry of the leader's own term has been delivered. All committed entries are then
        delivered."""
        node = self._node
        if self._claimed_term is not None or node.role is not RoleName.LEADER or self._stopped:
            return
        if self._applied_term == node.term:
            assert self._listener is not None
            self._claimed_term = node.term
            log.info("controller active term=%d end_index=%d", node.term, self._delivered_end_index)
            self._listener.on_claimed()

    def _resign(self) -> None:
        if self._claimed_term is None:
            return
        assert self._listener is not None
        log.info("controller no longer active term=%d", self._claimed_term)
        self._claimed_term = None
        self._own.clear()
        self._end_index = self._delivered_end_index
        self._listener.on_resigned()

    def _arm_timer(self) -> None:
        if self._stopped:
            return
        deadline_ms = self._node.next_deadline_ms()
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._step(DeadlinePassed())

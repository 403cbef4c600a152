"""The log of a controller that is alone: durable on its own disk is committed.

Entries appended in one turn of the event loop, and those that arrive while a write is under way, share the next
write: one thread, one `fsync` at a time (group commit). Committed entries are told in order.

A full disk is waited for: nobody is promised what is pending, requests run into their time-out, and everything goes on
when there is space. Any other failed write ends the process (`on_failure`): what the disk holds is not known any more.
Each start takes a new term, as an election won by one's own vote.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from klamm.errors import IllegalStateError
from klamm.wire.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from klamm_controller.log.port import OnCommitted
from klamm_controller.log.snapshot import snapshot_batches
from klamm_controller.log.store import DiskFullError, HardState, MetadataStore, StoredLog, last_term
from klamm_server.metadata.image import MetadataImage

log = logging.getLogger(__name__)

FULL_DISK_RETRY_S: Final = 1.0
"""Between attempts to write to a disk that is full."""

OnFailure = Callable[[str, BaseException], None]


class QuorumOfOne:
    """A MetadataLog (log/port.py) over one store, from `start` to `stop`."""

    def __init__(
        self,
        store: MetadataStore,
        stored: StoredLog,
        *,
        node_id: int,
        snapshot_interval_bytes: int,
        on_failure: OnFailure,
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._snapshot_interval_bytes = snapshot_interval_bytes
        self._on_failure = on_failure
        self._term = last_term(stored) + 1
        batches = stored.entries or stored.snapshot
        self._end_index = batches[-1].end_index if batches else 0
        self._bytes_since_snapshot = sum(entry.ByteSize() for entry in stored.entries)
        self._pending: list[MetadataBatch] = []
        self._snapshot: MetadataImage | None = None
        self._writer: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-log")
        self._on_committed: OnCommitted | None = None

    @property
    def is_leader(self) -> bool:
        return self._on_committed is not None

    @property
    def leader_id(self) -> int:
        return self._node_id if self.is_leader else -1

    @property
    def term(self) -> int:
        return self._term

    @property
    def snapshot_due(self) -> bool:
        return self._snapshot is None and self._bytes_since_snapshot >= self._snapshot_interval_bytes

    def start(self, on_committed: OnCommitted) -> None:
        self._store.write_hard_state(HardState(term=self._term, voted_for=self._node_id))
        self._on_committed = on_committed

    def append(self, records: Sequence[MetadataRecord]) -> MetadataBatch:
        if not self.is_leader:
            raise IllegalStateError("the metadata log is not open for appends")
        entry = MetadataBatch(
            term=self._term,
            base_index=self._end_index,
            end_index=self._end_index + len(records),
            records=records,
        )
        self._end_index = entry.end_index
        self._pending.append(entry)
        self._wake_writer()
        return entry

    def save_snapshot(self, image: MetadataImage) -> None:
        self._snapshot = image
        self._bytes_since_snapshot = 0
        self._wake_writer()

    async def stop(self) -> None:
        """On a full disk, what is pending is given up: nobody was promised it."""
        self._stopping.set()
        if self._writer is not None:
            await self._writer
        self._on_committed = None
        self._thread.shutdown()
        self._store.close()

    def _wake_writer(self) -> None:
        """The task runs in the loop's next turn at the earliest: this turn's entries are together by then."""
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_all(), name="metadata-log-writer")

    async def _write_all(self) -> None:
        try:
            while self._pending or self._snapshot is not None:
                await self._write_pending()
                await self._write_snapshot()
        except DiskFullError:
            log.warning(
                "stopped on a full disk: %d entries were not written, nobody was promised them", len(self._pending)
            )
        except Exception as error:  # noqa: BLE001 - rocksdict raises a bare Exception
            self._on_failure(f"the metadata log failed: {error}", error)
        finally:
            self._writer = None

    async def _write_pending(self) -> None:
        entries, self._pending = self._pending, []
        if not entries:
            return
        await self._write_when_there_is_space(lambda: self._store.write_entries(entries))
        self._bytes_since_snapshot += sum(entry.ByteSize() for entry in entries)
        assert self._on_committed is not None
        self._on_committed(entries)

    async def _write_snapshot(self) -> None:
        image = self._snapshot
        if image is None:
            return
        await self._write_when_there_is_space(lambda: self._store.write_snapshot(snapshot_batches(image, self._term)))
        self._snapshot = None
        log.info("snapshot written end_index=%d term=%d", image.end_index, self._term)

    async def _write_when_there_is_space(self, write: Callable[[], None]) -> None:
        """Raises DiskFullError when the log stops first."""
        failures = 0
        while True:
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, write)
            except DiskFullError as error:
                if self._stopping.is_set():
                    raise
                if not failures:
                    log.error("no metadata can be changed until there is space: %s", error)
                failures += 1
            else:
                if failures:
                    log.warning("there is space again: metadata can be changed, after %d attempts", failures)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), FULL_DISK_RETRY_S)

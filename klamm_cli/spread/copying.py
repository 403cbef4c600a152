"""Copies the partitions of the source into the target, exactly once and in order.

Each source partition has one copier. All records of a key are in one source partition, so one copier writes them, in
their order. Each transaction writes the records of one poll, and commits the offset after them to the own group. A
killed copier leaves an open transaction, which the next one aborts. The next one then continues at the committed
offset.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klamm import Consumer, Producer
from klamm.consumer.config import ConsumerConfig
from klamm.errors import KlammError
from klamm.model import TopicPartition
from klamm.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from klamm.producer.config import ProducerConfig
from klamm_cli.console.command_config import client_settings
from klamm_cli.spread.facts import Names, SpreadFacts
from klamm_cli.spread.plan import target_partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from klamm import Admin

AT_ONCE: Final = 4
"""How many source partitions are copied at the same time."""
_TRANSACTION_RECORDS: Final = 5_000
_POLL_MS: Final = 500
_SILENT_POLLS: Final = 120
"""A copier fails if this number of polls, which is a minute, moves its position no further."""
_LARGEST_REQUEST_BYTES: Final = 100 * 1024 * 1024
"""The broker, and not the producer, refuses records that are too large."""
_SHOW_EVERY_S: Final = 0.2


class CopyProgress:
    """Counts what the copiers have done. They run in threads of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.records = 0
        self.offsets = 0
        """The number of offsets that the copiers have passed. Some of them have no record."""

    def add(self, records: int, offsets: int) -> None:
        with self._lock:
            self.records += records
            self.offsets += offsets


@dataclass(frozen=True, slots=True)
class _Copier:
    """Copies one source partition."""

    admin: Admin
    names: Names
    tp: TopicPartition
    partitions: int
    mark: str
    consumer_settings: Mapping[str, object]
    producer_settings: Mapping[str, object]
    progress: CopyProgress
    stopped: threading.Event

    def copy(self, end: int) -> None:
        """Copies until the position is at least `end`, or until the command stops. Raises KlammError."""
        with self._open_producer() as producer:
            # This fences an earlier copier and ends its transaction. Its offset can be read after that.
            producer.init_transactions()
            offsets = self.admin.list_group_offsets(self.names.group_id, [self.tp], require_stable=True)
            committed = offsets.get(self.tp)
            if committed is None or committed.metadata != self.mark:
                raise KlammError(
                    f"group {self.names.group_id} has lost its offset in {self.tp.topic}-{self.tp.partition}"
                )
            if committed.offset < end:
                with Consumer[Any, Any](self.consumer_settings) as consumer:
                    consumer.assign([self.tp])
                    consumer.seek(self.tp, committed.offset)
                    self._copy(consumer, producer, committed.offset, end)

    def _copy(self, consumer: Consumer[Any, Any], producer: Producer[Any, Any], offset: int, end: int) -> None:
        rng = random.Random()
        silent = 0
        while offset < end and not self.stopped.is_set():
            records = consumer.poll(_POLL_MS, _TRANSACTION_RECORDS).get(self.tp, [])
            position = consumer.position(self.tp)
            if position <= offset:
                silent += 1
                if silent > _SILENT_POLLS:
                    raise KlammError(f"{self.tp.topic}-{self.tp.partition}: no record at offset {offset} of {end}")
                continue
            silent = 0
            self._write(producer, records, position, rng.randrange(self.partitions))
            self.progress.add(len(records), position - offset)
            offset = position

    def _write(self, producer: Producer[Any, Any], records: list[Any], position: int, sticky: int) -> None:
        with producer.transaction():
            for record in records:
                producer.send(
                    self.names.target,
                    record.value,
                    record.key,
                    partition=target_partition(record.key, self.partitions, sticky),
                    timestamp_ms=record.timestamp,
                    headers=record.headers,
                )
            offsets = {self.tp: OffsetAndMetadata(position, self.mark)}
            producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(self.names.group_id))

    @contextmanager
    def _open_producer(self) -> Iterator[Producer[Any, Any]]:
        transactional_id = self.names.transactional_id(self.tp.partition)
        producer = Producer[Any, Any]({**self.producer_settings, "transactional.id": transactional_id})
        try:
            yield producer
        except BaseException:
            producer.close(0)
            raise
        producer.close()


def copy_all(
    admin: Admin,
    bootstrap: str,
    facts: SpreadFacts,
    progress: CopyProgress,
    show: Callable[[], None],
    *,
    only_behind: bool,
) -> None:
    """Copies every source partition up to its last stable offset of `facts`. Calls `show` now and then.

    With `only_behind`, skips partitions that are copied already. Without it, also ends the transactions that an
    earlier run left open. Raises the first error of a copier after all copiers have stopped."""
    consumer_settings = {
        **client_settings(bootstrap, ConsumerConfig),
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    producer_settings = {
        **client_settings(bootstrap, ProducerConfig),
        # A batch that was compressed in the source must not become too large.
        "compression.type": "zstd",
        "max.request.size": _LARGEST_REQUEST_BYTES,
    }
    stopped, copied = threading.Event(), facts.copied

    def copier(number: int) -> _Copier:
        tp = TopicPartition(facts.names.source, number)
        settings = consumer_settings, producer_settings
        return _Copier(admin, facts.names, tp, facts.partitions, facts.mark, *settings, progress, stopped)

    wanted = {
        number: end for number, end in facts.source.stable_ends.items() if not only_behind or copied[number] < end
    }
    with ThreadPoolExecutor(AT_ONCE) as threads:
        copying = [threads.submit(copier(number).copy, end) for number, end in wanted.items()]
        try:
            _wait_for(copying, show)
        finally:
            stopped.set()
            for future in copying:
                future.cancel()


def _wait_for(copying: list[Future[None]], show: Callable[[], None]) -> None:
    """Waits until all copiers have ended. Raises the first error."""
    while copying:
        wait(copying, _SHOW_EVERY_S, FIRST_EXCEPTION)
        ended = [future for future in copying if future.done()]
        for future in ended:
            future.result()
        copying = [future for future in copying if future not in ended]
        show()

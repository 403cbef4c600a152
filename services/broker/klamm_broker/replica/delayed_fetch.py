"""A fetch that waits until enough bytes can be read.

Kafka's `DelayedFetch`. A waiting fetch does not read the log to check this. Each partition counts the bytes that became
readable, so a check costs one subtraction per partition. After the wait, the handler reads the log and answers with
what it finds. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from klamm_broker.replica.partition import Partition


class AwaitedPartition:
    """A partition whose reader has read everything, with the partition's state at that time."""

    __slots__ = ("_is_leader", "_leader_epoch", "_read_committed", "_readable_bytes", "partition")

    def __init__(self, partition: Partition, *, read_committed: bool = False) -> None:
        self.partition = partition
        self._is_leader = partition.is_leader
        self._leader_epoch = partition.leader_epoch
        self._read_committed = read_committed
        self._readable_bytes = partition.bytes.total(read_committed=read_committed)

    def arrived_bytes(self) -> int:
        return self.partition.bytes.total(read_committed=self._read_committed) - self._readable_bytes

    def is_lost(self) -> bool:
        """Returns True if the reader must get an answer without records immediately, for example because the leader
        changed."""
        partition = self.partition
        return (
            partition.is_leader is not self._is_leader
            or partition.leader_epoch != self._leader_epoch
            or not partition.has_leader
        )


class DelayedFetch:
    """Calls `on_done` once: when `missing_bytes` more bytes have arrived, a partition is lost, or the time is over."""

    __slots__ = ("_awaited", "_missing_bytes", "_on_done")

    def __init__(self, awaited: Collection[AwaitedPartition], missing_bytes: int, on_done: Callable[[], None]) -> None:
        assert missing_bytes > 0, missing_bytes
        self._awaited = awaited
        self._missing_bytes = missing_bytes
        self._on_done = on_done

    def try_complete(self) -> bool:
        arrived_bytes = 0
        for partition in self._awaited:
            arrived_bytes += partition.arrived_bytes()
            if arrived_bytes >= self._missing_bytes or partition.is_lost():
                self._on_done()
                return True
        return False

    def on_expiration(self) -> None:
        self._on_done()

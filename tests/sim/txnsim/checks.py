"""The properties that must hold, whatever fails. The names are those of violations.

- *zombie-write*: after another producer got the transactional id, nothing is appended for earlier ones.
- *late-write*: nothing of a transaction is appended after its marker, and nothing to a transaction of another one.
- *one-outcome*: all markers of a transaction have the same outcome, in every partition.
- *stable-end*: the last stable offset never goes back, and nothing undecided is below it.
- *atomicity*: readers see all acknowledged records of a transaction, or none. They see all of them if its producer got
  the answer that it is committed. They see none if the answer was that it is aborted, or if no commit was asked for.
- *once*: no record is seen twice.
- *hanging*: after the faults are over, no transaction stays open longer than its time-out.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from klamm.model import TopicPartition
from klamm_coordinator.transaction.messages import InitProducerId, SendMarkers
from klamm_coordinator.transaction.metadata import EPOCH_MAX, ProducerIdAndEpoch
from tests.support.violation import require

if TYPE_CHECKING:
    from tests.sim.txnsim.cluster import Cluster
    from tests.sim.txnsim.partition import Partition


class Checks:
    """Receives the events of the cluster, and raises an error if a property does not hold."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._newest: dict[str, ProducerIdAndEpoch] = {}
        """The producer that took over last, by transactional id. Producer ids grow, so later is greater."""
        self._owner_of: dict[int, str] = {}
        self._sent: defaultdict[ProducerIdAndEpoch, set[tuple[int, int]]] = defaultdict(set)
        """(partition, value) by transaction."""
        self._acknowledged: defaultdict[ProducerIdAndEpoch, set[tuple[int, int]]] = defaultdict(set)
        self._commit_asked: set[ProducerIdAndEpoch] = set()
        self._told: dict[ProducerIdAndEpoch, bool] = {}
        self._outcomes: dict[ProducerIdAndEpoch, bool] = {}
        self._ended: set[tuple[TopicPartition, ProducerIdAndEpoch]] = set()
        self.committed_count = 0

    # Coordinators

    def on_identity(self, request: InitProducerId, producer: ProducerIdAndEpoch) -> None:
        self._owner_of[producer.producer_id] = request.transactional_id
        if request.expected is None:
            self._newest[request.transactional_id] = max(producer, self._newest.get(request.transactional_id, producer))

    # Producers

    def on_sent(self, partition: Partition, producer: ProducerIdAndEpoch, value: int) -> None:
        self._sent[producer].add((partition.name.partition, value))

    def on_acknowledged(self, partition: Partition, producer: ProducerIdAndEpoch, value: int) -> None:
        self._acknowledged[producer].add((partition.name.partition, value))

    def on_commit_asked(self, producer: ProducerIdAndEpoch) -> None:
        self._commit_asked.add(producer)

    def on_ended(self, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        self._told[producer] = committed
        self.committed_count += committed
        self._cluster.note(f"{producer} is told: {'committed' if committed else 'aborted'}")

    # Partitions

    def on_append(self, partition: Partition, producer: ProducerIdAndEpoch, value: int) -> None:
        self._cluster.note(f"{partition.name} has {value} of {producer}")
        require(
            (partition.name.partition, value) in self._sent[producer],
            f"late-write: {value} was not sent in the transaction of {producer}",
        )
        newest = self._newest.get(self._owner_of.get(producer.producer_id, ""))
        require(newest is None or producer >= newest, f"zombie-write: {producer} in {partition.name} after {newest}")
        is_ended = (partition.name, producer) in self._ended
        require(not is_ended, f"late-write: {producer} in {partition.name} after its marker")

    def on_marker(self, partition: Partition, order: SendMarkers) -> None:
        self._cluster.note(f"{partition.name} has the marker {order.marker} committed={order.committed}")
        ended = _transaction_of(order)
        self._ended.add((partition.name, ended))
        first = self._outcomes.setdefault(ended, order.committed)
        require(first == order.committed, f"one-outcome: {ended} was decided {first}, now {order.committed}")

    def on_stable_end(self, partition: Partition, offset: int) -> None:
        former = partition.last_stable_offset
        require(offset >= former, f"stable-end: of {partition.name} {offset} after {former}")
        partition.last_stable_offset = offset

    # The end

    def check_readers(self) -> None:
        """Checks what a reader with read_committed has seen in the end."""
        seen = self._seen()
        for producer in {*self._sent, *seen}:
            self._check_transaction(producer, seen[producer])

    def seen_producers(self) -> set[ProducerIdAndEpoch]:
        """Returns the producers whose transactions a reader with read_committed sees in the end."""
        return set(self._seen())

    def _seen(self) -> defaultdict[ProducerIdAndEpoch, list[tuple[int, int]]]:
        seen: defaultdict[ProducerIdAndEpoch, list[tuple[int, int]]] = defaultdict(list)
        for partition in self._cluster.partitions:
            for producer, value in _committed_records(partition):
                seen[producer].append((partition.name.partition, value))
        return seen

    def _check_transaction(self, producer: ProducerIdAndEpoch, seen: list[tuple[int, int]]) -> None:
        require(len(seen) == len(set(seen)), f"once: of {producer} {sorted(seen)}")
        told = self._told.get(producer)
        story = f"{producer}: seen {sorted(seen)}, acknowledged {sorted(self._acknowledged[producer])}, told {told}"
        if told is False or producer not in self._commit_asked:
            require(not seen, f"atomicity: not committed, {story}")
            return
        require(told is None or bool(seen), f"atomicity: committed, {story}")
        require(not seen or set(seen) == self._acknowledged[producer], f"atomicity: {story}")

    def check_nothing_hangs(self) -> None:
        for partition in self._cluster.partitions:
            transactions = partition.states.transactions
            require(
                not len(transactions) and partition.last_stable_offset == len(partition.log),
                f"hanging: {len(transactions)} in {partition.name}, stable up to {partition.last_stable_offset} of"
                f" {len(partition.log)}",
            )


def _transaction_of(order: SendMarkers) -> ProducerIdAndEpoch:
    """Its marker has the next epoch."""
    assert 0 < order.marker.producer_epoch <= EPOCH_MAX, order
    return ProducerIdAndEpoch(order.marker.producer_id, order.marker.producer_epoch - 1)


def _committed_records(partition: Partition) -> list[tuple[ProducerIdAndEpoch, int]]:
    """Returns the records that a reader gets. They are below the last stable offset, and the producer's next marker
    commits them."""
    waiting: defaultdict[int, list[tuple[ProducerIdAndEpoch, int]]] = defaultdict(list)
    seen: list[tuple[ProducerIdAndEpoch, int]] = []
    for batch in partition.log[: partition.last_stable_offset]:
        of_producer = waiting[batch.producer.producer_id]
        if batch.value is not None:
            of_producer.append((batch.producer, batch.value))
            continue
        if batch.committed:
            seen += of_producer
        of_producer.clear()
    require(not any(waiting.values()), f"stable-end: of {partition.name} {dict(waiting)} are undecided")
    return seen

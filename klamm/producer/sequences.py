"""The numbers by which a broker recognises batches: producer id, epoch and sequence (KIP-98, KIP-360).

A batch gets its numbers when it is sent for the first time and keeps them through every retry, so that a broker
writes it once however often it arrives. A partition has at most one request under way, so its batches arrive in order.

A batch that fails after it was sent (expired, refused, out of retries) may be in the log or not, and may even arrive
later. Batches that were sent after it are sent again under their old numbers: if they are in order, the log has the
failed batch. If there are no such batches, or the broker answers OUT_OF_ORDER_SEQUENCE_NUMBER or UNKNOWN_PRODUCER_ID,
the partition continues in the next epoch, from number 0. The new epoch fences requests of the previous epoch that are
still under way. Kafka's `TransactionManager` bumps one epoch for all partitions and moves them to it one by one.
Brokers compare epochs per partition, so here each partition has its own epoch. After the last epoch, the producer
needs a new producer id.

In a transactional producer each epoch is one transaction (KIP-890), and the coordinator gives the next epoch. A failed
batch ends its transaction, so no batch follows it in this epoch.

Pure; used on the producer's loop only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klamm.model import TopicPartition
from klamm.producer.batch import Batch, Stamp
from klamm.records import increment_sequence

EPOCH_MAX: Final = 2**15 - 1


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch that InitProducerId returned."""

    producer_id: int
    epoch: int


class _Partition:
    __slots__ = ("epoch", "is_broken", "next_sequence", "producer_id")

    def __init__(self, given: ProducerIdAndEpoch) -> None:
        self.producer_id, self.epoch = given
        self.next_sequence = 0
        self.is_broken = False
        """True after a batch that was sent has failed, until a later batch is written."""


class Sequences:
    """The sequence numbers of one idempotent or transactional producer."""

    def __init__(self, *, is_transactional: bool = False) -> None:
        self._is_transactional = is_transactional
        self._given: ProducerIdAndEpoch | None = None
        self.needs_id = True
        """True if `begin` must be called before anything else is sent."""
        self._partitions: dict[TopicPartition, _Partition] = {}

    def begin(self, given: ProducerIdAndEpoch) -> None:
        """Sets the producer id and epoch. A partition uses them when it next needs an id or a new epoch. With
        transactions, all partitions use them at once."""
        self._given = given
        self.needs_id = False
        if self._is_transactional:
            self._partitions.clear()

    def stamp(self, tp: TopicPartition, batches: Sequence[Batch]) -> None:
        """Numbers the batches that have no numbers yet. They are about to be sent, and these are always the last
        ones.
        """
        assert self._given is not None, "no producer id yet"
        state = self._partitions.get(tp)
        if state is None:
            state = self._partitions[tp] = _Partition(self._given)
        if state.is_broken and batches[0].stamp is None and not self._is_transactional:
            self._next_epoch(state)
        for batch in batches:
            if batch.stamp is None:
                batch.stamp = Stamp(state.producer_id, state.epoch, state.next_sequence)
                state.next_sequence = increment_sequence(state.next_sequence, len(batch.records))

    def on_written(self, tp: TopicPartition) -> None:
        """Notes an acknowledged request. All batches that were sent before it are in the log too."""
        self._partitions[tp].is_broken = False

    def on_failed(self, batch: Batch) -> None:
        """Notes a batch that will not be sent again."""
        if batch.stamp is not None:
            self._partitions[batch.tp].is_broken = True

    def restart(self, tp: TopicPartition, batches: Iterable[Batch]) -> None:
        """Gives all waiting `batches` new numbers in the next epoch, because the broker does not accept the old
        ones.
        """
        self._partitions[tp].is_broken = True
        for batch in batches:
            batch.stamp = None
            batch.encoded = None

    def _next_epoch(self, state: _Partition) -> None:
        assert self._given is not None
        if state.producer_id != self._given.producer_id:
            state.producer_id, state.epoch = self._given
        else:
            assert state.epoch < EPOCH_MAX, state.producer_id
            state.epoch += 1
        state.next_sequence = 0
        state.is_broken = False
        self.needs_id |= state.epoch == EPOCH_MAX

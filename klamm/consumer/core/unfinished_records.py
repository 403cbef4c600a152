"""The records that the application has got but has perhaps not processed: those of the last poll, or the last record of
an iteration. The next poll, the next record or a commit shows that they are processed.

If an exception leaves the `with` block of a consumer, the automatic commit must not include them."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.consumer.config import Records
from klamm.consumer.partition_state import PartitionState
from klamm.consumer.record import ConsumerRecord
from klamm.consumer.subscription import SubscriptionState
from klamm.model import NO_LEADER_EPOCH, TopicPartition
from klamm.offsets import OffsetAndMetadata


class UnfinishedRecords:
    """The unfinished records of one consumer. The polling thread owns it."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._polled: dict[TopicPartition, tuple[int, int]] = {}
        """The offset of the first unfinished record of each partition, with the position epoch."""
        self.in_hand: ConsumerRecord | None = None
        """The last record of an iteration."""

    def finish(self) -> None:
        """Notes that the application has processed all records that it has."""
        self._polled.clear()
        self.in_hand = None

    def note(self, polled: Records) -> None:
        """Notes the records that a poll returns."""
        for tp, records in polled.items():
            self.note_position(tp, records[0].offset)

    def note_position(self, tp: TopicPartition, offset: int) -> None:
        """Notes that a poll returns records of a partition from `offset` on."""
        if (state := self._subscription.get(tp)) is not None:
            self._polled[tp] = (offset, state.position_epoch)

    def note_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Notes a commit of the application. Records below the committed offsets are processed."""
        for tp, committed in offsets.items():
            if (polled := self._polled.get(tp)) is not None:
                self._polled[tp] = (max(polled[0], committed.offset), polled[1])
            record = self.in_hand
            if record is not None and (record.topic, record.partition) == tp and record.offset < committed.offset:
                self.in_hand = None

    def take_back(self) -> None:
        """Moves the positions back to the unfinished records."""
        for tp, (offset, position_epoch) in self._polled.items():
            state = self._subscription.get(tp)
            # A partition that was revoked or sought has another position epoch.
            if state is not None and state.position_epoch == position_epoch:
                _move_back(state, offset)
        record = self.in_hand
        if record is not None:
            state = self._subscription.get(record.topic_partition)
            if state is not None and state.position == record.offset + 1:
                _move_back(state, record.offset)
        self.finish()


def _move_back(state: PartitionState, offset: int) -> None:
    if offset < state.position:
        state.position = offset
        state.leader_epoch = NO_LEADER_EPOCH

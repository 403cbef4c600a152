"""Iteration with `for record in consumer`: returns polled records one at a time and moves the position with each.

Polled records that the loop has not received do not count as consumed. So a commit inside the loop, or a close after
it, stores exactly the records that the loop has received."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from klamm.consumer.config import Records
from klamm.consumer.core.unfinished_records import UnfinishedRecords
from klamm.consumer.partition_state import PartitionState
from klamm.consumer.record import ConsumerRecord
from klamm.consumer.subscription import SubscriptionState


class _Run(NamedTuple):
    state: PartitionState
    """It has another position epoch after the partition was revoked, paused or moved."""
    position_epoch: int
    records: Iterator[ConsumerRecord]
    end_position: int
    """The position after the last record. It is greater than the last offset plus one if skipped records or markers
    follow."""
    end_leader_epoch: int


class RecordIteration:
    """The records of the last poll that the loop has not received yet."""

    def __init__(self, subscription: SubscriptionState, unfinished: UnfinishedRecords) -> None:
        self._subscription = subscription
        self.unfinished = unfinished
        self.runs: deque[_Run] = deque()

    def load(self, polled: Records) -> None:
        """Stores the records of a poll and moves the positions back to their beginning."""
        assert not self.runs, "the records of the poll before are not used up"
        self.unfinished.finish()
        for tp, records in polled.items():
            state = self._subscription.get(tp)
            if state is not None:
                self.runs.append(_Run(state, state.position_epoch, iter(records), state.position, state.leader_epoch))
                state.position = records[0].offset

    def next(self) -> ConsumerRecord | None:
        """Returns the next record, or None if there is none left. Skips partitions that were paused, revoked or
        moved.
        """
        runs = self.runs
        while runs:
            run = runs[0]
            state = run.state
            if state.position_epoch == run.position_epoch:
                if state.paused:
                    state.refetch()
                else:
                    for record in run.records:
                        state.position = record.offset + 1
                        state.leader_epoch = record.leader_epoch
                        self.unfinished.in_hand = record
                        return record
                    state.position = run.end_position
                    state.leader_epoch = run.end_leader_epoch
            runs.popleft()
        return None

    def abandon(self) -> None:
        """Drops the records that were not consumed; they will be fetched again."""
        for run in self.runs:
            if run.state.position_epoch == run.position_epoch:
                run.state.refetch()
        self.runs.clear()

    def __bool__(self) -> bool:
        return bool(self.runs)

"""The position of a consumer in one assigned partition. It has one of four states:

    INITIALIZING   where to begin is not known yet: the committed offset is being looked up
    RESETTING      the position will be the offset at `reset_timestamp_ms` (earliest and latest included)
    VALIDATING     `position` counts when the leader has the record before it, of `leader_epoch`, in its log (KIP-320)
    FETCHING       `position` is the next offset to return

    INITIALIZING -> VALIDATING (committed offset with its epoch, such a seek) | FETCHING (without) |
                    RESETTING (nothing committed)
    RESETTING    -> FETCHING (offset found) | VALIDATING, FETCHING (seek)
    VALIDATING   -> FETCHING (at the position, or where the logs part) | RESETTING (unknown where)
    FETCHING     -> FETCHING (records returned, seek) | VALIDATING (another leader epoch, an answer that the logs part,
                    such a seek) | RESETTING (seek_to_beginning, out of range ...)

Every change of a position, except by returned records, gives the partition a new `position_epoch`. It distinguishes
records fetched for the old position from records fetched for the new one. A partition in any state may be paused.

Follows `org.apache.kafka.clients.consumer.internals.SubscriptionState.TopicPartitionState`."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from klamm.consumer.position_reset import LostPosition
from klamm.model import NO_LEADER_EPOCH, TopicPartition


class PositionState(enum.Enum):
    """The fetch states of a partition. The module's docstring has the table of transitions."""

    INITIALIZING = "initializing"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"


class Validation(NamedTuple):
    """A position that waits to be validated."""

    position_epoch: int
    position: int
    leader_epoch: int
    """The epoch of the batch before the position."""


class PartitionState:
    """The fetch state of one partition. `position` is set in FETCHING and VALIDATING only, `reset_timestamp_ms` in
    RESETTING.

    `epochs` yields position epochs. No partition ever gets the same epoch again."""

    __slots__ = (
        "_epochs",
        "current_leader_epoch",
        "end_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "lost",
        "paused",
        "position",
        "position_epoch",
        "reset_timestamp_ms",
        "state",
        "suspect",
    )

    def __init__(self, epochs: Iterator[int]) -> None:
        self._epochs = epochs
        self.state = PositionState.INITIALIZING
        self.position_epoch = next(epochs)
        self.position = -1
        self.leader_epoch = NO_LEADER_EPOCH
        """The epoch of the batch before the position, if known. Commits contain it, so that a truncation of the log is
        noticed."""
        self.current_leader_epoch = NO_LEADER_EPOCH
        """The leader epoch under which the position is valid, or -1 if it was not validated yet."""
        self.suspect = False
        """True after a leader reported that the position is not valid any more. The next poll validates it."""
        self.reset_timestamp_ms = 0
        self.lost: LostPosition | None = None
        """The position that the log no longer has, while a reset that the user did not ask for is under way."""
        self.paused = False
        self.end_offset: int | None = None
        """The offset at which a reading ends, so that no fetch begins there. None if the reading has no end."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None

    @property
    def fetchable(self) -> bool:
        return self.state is PositionState.FETCHING and not self.paused

    @property
    def validation(self) -> Validation:
        """The position to validate. The state must be VALIDATING."""
        return Validation(self.position_epoch, self.position, self.leader_epoch)

    def seek(self, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Moves the position to `offset`. With `leader_epoch`, the epoch of the record before it, the position is
        validated first: the leader's log must still have that record."""
        known = leader_epoch != NO_LEADER_EPOCH
        self._place(PositionState.VALIDATING if known else PositionState.FETCHING, offset, leader_epoch)
        self.current_leader_epoch = NO_LEADER_EPOCH

    def request_reset(self, timestamp_ms: int, lost: LostPosition | None = None) -> None:
        """Drops the position until the offset at `timestamp_ms` is found. `lost` is the old position if the log no
        longer has it."""
        self.state = PositionState.RESETTING
        self.lost = lost
        self.reset_timestamp_ms = timestamp_ms
        self.position_epoch = next(self._epochs)

    def refetch(self) -> None:
        """Makes fetched records obsolete, so that the records from the position on are fetched again."""
        self.position_epoch = next(self._epochs)

    def check_leader(self, leader_epoch: int) -> None:
        """Requests a validation if the position is suspect, or was read under another leader epoch than `leader_epoch`
        (-1 if there is no leader). Records that were fetched ahead are then not returned."""
        if self.state is not PositionState.FETCHING or leader_epoch == NO_LEADER_EPOCH:
            return
        moved = leader_epoch != self.current_leader_epoch
        self.current_leader_epoch = leader_epoch
        if (moved or self.suspect) and self.leader_epoch != NO_LEADER_EPOCH:
            self._place(PositionState.VALIDATING, self.position, self.leader_epoch)
        elif self.suspect:
            self._place(PositionState.FETCHING, self.position, NO_LEADER_EPOCH)

    def complete_validation(self, offset: int, leader_epoch: int, current_leader_epoch: int) -> None:
        """Ends the validation: the position is valid at `offset`, after a batch of `leader_epoch`, under the leader of
        `current_leader_epoch`."""
        self._place(PositionState.FETCHING, offset, leader_epoch)
        self.current_leader_epoch = current_leader_epoch

    def check_invariants(self, tp: TopicPartition) -> None:
        """Raises AssertionError if an invariant does not hold."""
        placed = self.state in (PositionState.FETCHING, PositionState.VALIDATING)
        assert not placed or self.position >= 0, f"{tp} is fetching from {self.position}"
        validating = self.state is PositionState.VALIDATING
        assert not validating or self.leader_epoch >= 0, f"{tp} is validating without an epoch"

    def _place(self, state: PositionState, offset: int, leader_epoch: int) -> None:
        self.state = state
        self.lost = None
        self.position = offset
        self.leader_epoch = leader_epoch
        self.suspect = False
        self.position_epoch = next(self._epochs)

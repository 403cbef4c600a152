"""What must hold after every event, whatever fails (the names are those of violations).

- *single-leader*: in one leader epoch one broker appends.
- *committed-prefix*: below its high watermark every replica has the same records as everybody else.
- *durable-acknowledgement*: whoever may be elected, in sync or eligible, has everything that was committed.
- *clean-election*: whom the controller elects has it too, at that moment.
- *acknowledged*: what was acknowledged is committed, and is what was sent.
- *visible-end*: the end that consumers are told never goes back from one leader epoch to a later one, nor within one.
- *high-watermark*: it never goes back on a leader, and is never beyond the end of the log.

A replica that lost its tail in a power failure is exempt until it is in sync again, for the controller learns of it
only when the broker registers. It may even be elected before that, but is dead then, and in no state to do harm.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from isrsim.sim_log import NO_CHAIN
from klamm_server.metadata.image import NO_LEADER, PartitionImage

if TYPE_CHECKING:
    from isrsim.broker import SimBroker
    from isrsim.cluster import Cluster


class ViolationError(AssertionError):
    """A rule was broken; the message begins with its name."""


def require(holds: bool, message: str) -> None:
    if not holds:
        raise ViolationError(message)


class Checks:
    """Hears of what happens, and objects."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._committed: list[int] = []
        """The chain up to each offset that any leader's high watermark passed."""
        self._leader_of: dict[int, int] = {}
        self._high_watermarks: dict[int, tuple[object, int]] = {}
        self._visible: list[tuple[int, int]] = []
        """(leader epoch, end told to a consumer), by epoch."""
        self._led: tuple[int, int] = (NO_LEADER, -1)
        self.acknowledged_count = 0

    @property
    def committed_offset(self) -> int:
        return len(self._committed)

    # What brokers do

    def on_append(self, broker: SimBroker) -> None:
        partition = broker.partition
        assert partition is not None
        first = self._leader_of.setdefault(partition.leader_epoch, broker.broker_id)
        require(
            first == broker.broker_id,
            f"single-leader: {first} and {broker.broker_id} append in epoch {partition.leader_epoch}",
        )

    def on_acknowledged(self, broker: SimBroker, offset: int, value: int) -> None:
        self.acknowledged_count += 1
        require(
            broker.log.records[offset].value == value,
            f"acknowledged: offset {offset} has {broker.log.records[offset]}, not {value}",
        )
        require(offset < self.committed_offset, f"acknowledged: {offset} is beyond {self.committed_offset}")

    def on_read(self, broker: SimBroker, end_offset: int) -> None:
        partition = broker.partition
        assert partition is not None
        epoch = partition.leader_epoch
        place = bisect_right(self._visible, (epoch, 1 << 62))
        if place:
            earlier_epoch, earlier_end = self._visible[place - 1]
            require(
                end_offset >= earlier_end,
                f"visible-end: {earlier_end} in epoch {earlier_epoch}, {end_offset} in epoch {epoch} of broker"
                f" {broker.broker_id}",
            )
            if (epoch, end_offset) == (earlier_epoch, earlier_end):
                return
        insort(self._visible, (epoch, end_offset))

    def after_step(self, broker: SimBroker) -> None:
        """Of one broker, after anything happened to it."""
        partition = broker.partition
        if partition is not None:
            self._check_high_watermark(broker)
            self._check_prefix(broker, partition.high_watermark)
        image = self._cluster.controller.partition
        if image is not None and self._counts(broker, image):
            self._check_has_everything(broker, "durable-acknowledgement")

    def _check_high_watermark(self, broker: SimBroker) -> None:
        partition = broker.partition
        assert partition is not None
        high_watermark = partition.high_watermark
        require(
            high_watermark <= broker.log.log_end_offset,
            f"high-watermark: {high_watermark} of broker {broker.broker_id} is beyond {broker.log.log_end_offset}",
        )
        leadership = partition.leadership
        last_leadership, last = self._high_watermarks.get(broker.broker_id, (None, -1))
        if leadership is not None and leadership is last_leadership:
            require(high_watermark >= last, f"high-watermark: {high_watermark} after {last} on {broker.broker_id}")
        self._high_watermarks[broker.broker_id] = (leadership, high_watermark)

    def _check_prefix(self, broker: SimBroker, high_watermark: int) -> None:
        log = broker.log
        for end_offset in range(self.committed_offset + 1, high_watermark + 1):
            self._committed.append(log.chain_at(end_offset))
        expected = self._committed[high_watermark - 1] if high_watermark else NO_CHAIN
        require(
            log.chain_at(high_watermark) == expected,
            f"committed-prefix: broker {broker.broker_id} has other records below {high_watermark}",
        )

    def _check_has_everything(self, broker: SimBroker, rule: str) -> None:
        log, end_offset = broker.log, self.committed_offset
        has_it = log.log_end_offset >= end_offset and (
            not end_offset or log.chain_at(end_offset) == self._committed[end_offset - 1]
        )
        require(
            has_it,
            f"{rule}: broker {broker.broker_id} with log end {log.log_end_offset} lacks some of the {end_offset}"
            " committed records",
        )

    def _counts(self, broker: SimBroker, image: PartitionImage) -> bool:
        return broker.broker_id in (*image.isr, *image.elr) and broker.broker_id not in self._cluster.lossy

    # What the controller does

    def on_commit(self, image: PartitionImage) -> None:
        brokers = self._cluster.brokers
        if (image.leader, image.leader_epoch) != self._led:
            self._led = (image.leader, image.leader_epoch)
            self._cluster.note(f"epoch {image.leader_epoch}: leader {image.leader}, isr {image.isr}, elr {image.elr}")
            if image.leader != NO_LEADER and not self._cluster.is_dead_in_secret(image.leader):
                self._check_has_everything(brokers[image.leader], "clean-election")
        for broker_id in (*image.isr, *image.elr):
            if self._counts(brokers[broker_id], image):
                self._check_has_everything(brokers[broker_id], "durable-acknowledgement")

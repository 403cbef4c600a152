"""The properties that must hold after every event, whatever fails. The names are those of violations.

- *single-leader*: in one leader epoch one broker appends.
- *committed-prefix*: below its high watermark every replica has the same records as all others.
- *durable-acknowledgement*: a replica that may be elected, in sync or eligible, has every committed record.
- *clean-election*: the elected leader has them too, at that moment. It was in sync or eligible. If there was no such
  replica, its log is the most complete. The records on the disk of a replica that was in sync last survive (KIP-966).
- *joins-in-sync*: a broker that enters the in-sync set is neither fenced nor about to stop.
- *acknowledged*: an acknowledged record is committed, and is the record that was sent.
- *visible-end*: the end that consumers see never goes back from one leader epoch to a later one, nor within one.
- *sequence*: a log's state of its producers agrees with its records, including the places of the last five records of
  each. The sequences of a producer's committed records are consecutive. The leader accepts the next sequence.
- *consumer*: a replica that serves a consumer, leader or follower, has the records that the consumer has read so far.
- *high-watermark*: it never goes back on a leader, and is never beyond the end of the log.

A replica that lost its tail in a power failure is exempt until it is in sync again. The controller learns about the
loss only when the broker registers. The replica may even be elected before that, but it is dead then, and can do no
harm.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from klamm_broker.log.producers.producer_state import RUNS_KEPT, Run
from klamm_server.metadata.entities import NO_LEADER, PartitionImage
from klamm_server.metadata.image import MetadataImage
from tests.sim.isrsim.sim_log import NO_CHAIN, SimLog
from tests.support.violation import Violation, require

if TYPE_CHECKING:
    from klamm_broker.replica.partition import Partition
    from tests.sim.isrsim.broker import SimBroker
    from tests.sim.isrsim.cluster import Cluster


class Checks:
    """Receives the events of the brokers, and raises an error if a property does not hold."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._committed: list[int] = []
        """The chain up to each offset that any leader's high watermark passed."""
        self._leader_of: dict[int, int] = {}
        self._high_watermarks: dict[int, tuple[object, int]] = {}
        self._visible: list[tuple[int, int]] = []
        """The end that a consumer saw in each leader epoch, as (leader epoch, end)."""
        self._image: PartitionImage | None = None
        self._committed_sequences: dict[int, int] = {}
        self._log_versions: dict[int, tuple[SimLog, int]] = {}
        self._acknowledged: set[int] = set()

        self.visible_count = 0
        """The number of times that a consumer saw an end."""

    @property
    def acknowledged_count(self) -> int:
        """Records, however often each was acknowledged."""
        return len(self._acknowledged)

    @property
    def committed_offset(self) -> int:
        return len(self._committed)

    # The actions of brokers

    def on_append(self, broker: SimBroker) -> None:
        partition = broker.partition
        assert partition is not None
        first = self._leader_of.setdefault(partition.leader_epoch, broker.broker_id)
        require(
            first == broker.broker_id,
            f"single-leader: {first} and {broker.broker_id} append in epoch {partition.leader_epoch}",
        )

    def on_acknowledged(self, broker: SimBroker, offset: int, value: int) -> None:
        self._acknowledged.add(offset)
        require(
            broker.log.records[offset].value == value,
            f"acknowledged: offset {offset} has {broker.log.records[offset]}, not {value}",
        )
        require(offset < self.committed_offset, f"acknowledged: {offset} is beyond {self.committed_offset}")

    def on_read(self, broker: SimBroker, end_offset: int) -> None:
        partition = broker.partition
        assert partition is not None
        epoch = partition.leader_epoch
        self.visible_count += 1
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
        """Checks one broker, after anything happened to it."""
        partition = broker.partition
        image = self._cluster.controller.partition
        self._check_producers(broker)
        committed_offset = self.committed_offset
        if partition is not None:
            self._check_high_watermark(broker, partition)
            self._check_prefix(broker, partition.high_watermark)
        if image is not None:
            is_more = self.committed_offset > committed_offset
            concerned = (*image.isr, *image.elr) if is_more else (broker.broker_id,)
            for other in map(self._cluster.brokers.__getitem__, concerned):
                if self._counts(other, image):
                    self._check_has_everything(other, "durable-acknowledgement")

    def _check_high_watermark(self, broker: SimBroker, partition: Partition) -> None:
        high_watermark = partition.high_watermark
        log_end_offset = broker.log.log_end_offset
        if high_watermark > log_end_offset:
            raise Violation(f"high-watermark: {high_watermark} of broker {broker.broker_id} is beyond {log_end_offset}")
        leadership = partition.leadership
        last_leadership, last = self._high_watermarks.get(broker.broker_id, (None, -1))
        if leadership is not None and leadership is last_leadership and high_watermark < last:
            raise Violation(f"high-watermark: {high_watermark} after {last} on {broker.broker_id}")
        self._high_watermarks[broker.broker_id] = (leadership, high_watermark)

    def _check_prefix(self, broker: SimBroker, high_watermark: int) -> None:
        log = broker.log
        for end_offset in range(self.committed_offset + 1, high_watermark + 1):
            self._committed.append(log.chain_at(end_offset))
            self._check_sequence(log, end_offset - 1)
        expected = self._committed[high_watermark - 1] if high_watermark else NO_CHAIN
        if log.chain_at(high_watermark) != expected:
            raise Violation(f"committed-prefix: broker {broker.broker_id} has other records below {high_watermark}")

    def _check_sequence(self, log: SimLog, offset: int) -> None:
        _, producer, sequence, _, _ = log.records[offset]
        last = self._committed_sequences.get(producer, -1)
        require(
            sequence == last + 1, f"sequence: {sequence} of producer {producer} is committed at {offset}, after {last}"
        )
        self._committed_sequences[producer] = sequence

    def _check_producers(self, broker: SimBroker) -> None:
        log = broker.log
        if self._log_versions.get(broker.broker_id) == (log, log.version):
            return
        self._log_versions[broker.broker_id] = (log, log.version)
        remembered: dict[int, list[Run]] = {}
        for row in log.producers.rows():
            runs = remembered.setdefault(row.producer_id, [])
            if row.run is not None:
                runs.append(row.run)
        for producer, offsets in log.offsets_of.items():
            runs = remembered.pop(producer, [])
            said = {offset: sequence for run in runs for sequence, offset in _places(run, RUNS_KEPT)}
            expected = {offset: log.records[offset].sequence for offset in offsets[-RUNS_KEPT:]}
            if not (expected.items() <= said.items() and max(said, default=-1) == max(expected, default=-1)):
                raise Violation(
                    f"sequence: of producer {producer} broker {broker.broker_id} remembers {said};"
                    f" its log says {expected}"
                )
        require(not remembered, f"sequence: broker {broker.broker_id} remembers {remembered}, not in its log")

    def _check_has_everything(self, broker: SimBroker, rule: str) -> None:
        log, end_offset = broker.log, self.committed_offset
        has_it = log.log_end_offset >= end_offset and (
            not end_offset or log.chain_at(end_offset) == self._committed[end_offset - 1]
        )
        if not has_it:
            raise Violation(
                f"{rule}: broker {broker.broker_id} with log end {log.log_end_offset} lacks some of the {end_offset}"
                " committed records"
            )

    def _counts(self, broker: SimBroker, image: PartitionImage) -> bool:
        return broker.broker_id in (*image.isr, *image.elr) and broker.broker_id not in self._cluster.lossy

    # What the controller does

    def on_commit(self, image: PartitionImage, brokers: MetadataImage) -> None:
        before, self._image = self._image, image
        if image is before:
            return
        if before is not None:
            self._check_joining(before, image, brokers)
        if before is None or (image.leader, image.leader_epoch) != (before.leader, before.leader_epoch):
            self._cluster.note(
                f"controller: epoch {image.leader_epoch}: leader {image.leader}, isr {image.isr}, elr {image.elr}"
            )
            self._check_election(before, image)
        for broker_id in (*image.isr, *image.elr):
            broker = self._cluster.brokers[broker_id]
            if self._counts(broker, image):
                self._check_has_everything(broker, "durable-acknowledgement")

    def _check_joining(self, before: PartitionImage, image: PartitionImage, brokers: MetadataImage) -> None:
        for broker_id in image.isr:
            broker = brokers.brokers[broker_id]
            require(
                broker_id in before.isr or not (broker.fenced or broker.in_controlled_shutdown),
                f"joins-in-sync: {broker}",
            )

    def _check_election(self, before: PartitionImage | None, image: PartitionImage) -> None:
        if image.leader == NO_LEADER:
            return
        if before is not None:
            candidates = (*before.isr, *before.elr)
            # The change that completes a reassignment may bring the next leader into the in-sync set.
            is_completion = before.removing_replicas and not image.removing_replicas
            # So may one that takes over from a leader that has resigned.
            is_relief = before.leader in before.resigned_replicas
            is_recovery = not candidates and len(before.last_known_elr) > 0
            require(
                image.leader in candidates or is_completion or is_relief or is_recovery,
                f"clean-election: {image.leader} is elected, and not one of {candidates}",
            )
        if not self._cluster.is_dead_in_secret(image.leader):
            self._check_has_everything(self._cluster.brokers[image.leader], "clean-election")


def _places(run: Run, last: int) -> list[tuple[int, int]]:
    """(sequence, offset) of the last records of a run."""
    count = run.record_count
    return [(run.base_sequence + number, run.base_offset + number) for number in range(max(0, count - last), count)]

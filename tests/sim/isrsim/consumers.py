"""A consumer that reads on at the leader or at a follower (KIP-392), with metadata of any age.

It sends the leader epoch that it knows, and the epoch of its last record (KIP-320). The replica that serves it can
therefore report that records that it has read were truncated. With clean elections this never happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.errors import BrokerError
from tests.support.violation import require

if TYPE_CHECKING:
    from tests.sim.isrsim.broker import SimBroker


class SimConsumer:
    """Begins at the beginning."""

    def __init__(self) -> None:
        self.offset = 0
        self._last_epoch = -1
        self._leader_epoch = -1

    def learn(self, broker: SimBroker) -> None:
        """The leader epoch that a broker knows, unless this one knows a newer one."""
        if broker.partition is not None:
            self._leader_epoch = max(self._leader_epoch, broker.partition.leader_epoch)

    def poll(self, broker: SimBroker) -> bool:
        """Reads all that this replica gives. Returns whether the replica serves at all."""
        partition, log = broker.partition, broker.log
        if partition is None:
            return False
        try:
            partition.check_reader(self._leader_epoch, self.offset, from_follower=True)
        except BrokerError:
            return False
        place = f"a consumer at {self.offset}, epoch {self._last_epoch}: broker {broker.broker_id}"
        require(self.offset <= log.log_end_offset, f"consumer: {place} has only {log.log_end_offset}")
        diverging = partition.divergence(self._last_epoch, self.offset)
        require(diverging is None, f"consumer: {place} says that its log parts at {diverging}")
        end_offset = partition.readable_end_offset(read_committed=False)
        if end_offset > self.offset:
            self.offset, self._last_epoch = end_offset, log.records[end_offset - 1].epoch
        return True

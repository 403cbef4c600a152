"""A consumer that reads on from where it is, at the leader or at a follower (KIP-392), with metadata of any age.

It says which leader epoch it knows and of which epoch its last record is (KIP-320), so the replica that serves it can
tell it that what it has read was cut. With clean elections that is never so.
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
        """Reads all that this replica gives; whether it serves at all."""
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

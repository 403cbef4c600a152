"""Carries out the orders of transaction shards to write markers to partitions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from klamm_coordinator.io.marker_sender import MarkerSender
from klamm_coordinator.io.producer_id_refill import ProducerIdRefill
from klamm_coordinator.io.shard_host import ShardHost
from klamm_coordinator.transaction.messages import MarkersWritten, SendMarkers
from klamm_coordinator.transaction_shard.rules import TransactionRules


class MarkerOrders:
    """The `OrderCarrier` of transaction shards. Markers carry the coordinator epoch of the shard's assignment."""

    def __init__(self, markers: MarkerSender, supply: ProducerIdRefill) -> None:
        self._markers = markers
        self._supply = supply

    def carry_out(self, orders: Sequence[SendMarkers], host: ShardHost[TransactionRules]) -> None:
        """Sends the markers that a step ordered. Also fetches producer ids if few are left, because the step may have
        used some."""
        self._supply.top_up()
        for order in orders:
            written = MarkersWritten(transactional_id=order.transactional_id, marker=order.marker)
            self._markers.send(
                order,
                coordinator_epoch=host.coordinator_epoch,
                owner=host,
                on_written=partial(host.step, written),
            )

    def forget(self, host: ShardHost[TransactionRules]) -> None:
        """Drops the markers of a shard that this coordinator releases."""
        self._markers.forget(host)

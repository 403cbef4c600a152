"""A shard of `__transaction_state` in its shell."""

from __future__ import annotations

import random
from functools import partial

from klamm.records import BatchHeader, Buffer, decode_batch
from klamm_coordinator.io.log_link import LogLink
from klamm_coordinator.io.marker_sender import MarkerSender
from klamm_coordinator.io.producer_id_supply import ProducerIdSupply
from klamm_coordinator.settings import TransactionSettings
from klamm_coordinator.shard_host import ShardHost
from klamm_coordinator.transaction.messages import Effects, MarkersWritten
from klamm_coordinator.transaction.producer_ids import ProducerIdStock
from klamm_coordinator.transaction.records import decode_transaction_record
from klamm_coordinator.transaction.shard import TransactionShard
from klamm_server.clock import Clock


class TransactionHost(ShardHost[TransactionShard]):
    """See `ShardHost`. The markers that its shard wants sent carry the writer epoch of its assignment."""

    def __init__(
        self,
        number: int,
        link: LogLink,
        *,
        settings: TransactionSettings,
        stock: ProducerIdStock,
        supply: ProducerIdSupply,
        markers: MarkerSender,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._stock = stock
        self._supply = supply
        self._markers = markers
        super().__init__(number, link, pending_writes_max=settings.pending_writes_max, clock=clock, rng=rng)

    def _begin_load(self) -> _TransactionLoading:
        return _TransactionLoading(TransactionShard(self._settings, self._stock))

    def _carry_out(self, effects: Effects) -> None:
        self._supply.top_up()
        for order in effects.markers:
            written = MarkersWritten(transactional_id=order.transactional_id, marker=order.marker)
            self._markers.send(
                order,
                coordinator_epoch=self._link.coordinator_epoch,
                owner=self,
                on_written=partial(self.step, written),
            )

    def _let_go(self) -> None:
        self._markers.forget(self)
        super()._let_go()


class _TransactionLoading:
    def __init__(self, core: TransactionShard) -> None:
        self.core = core
        self._skipped_count = 0

    def replay_batch(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        """Applies the batch at `position`. Raises SchemaError, or a CorruptBatchError."""
        for _, _, key, value, _ in decode_batch(buffer, position):
            record = None if key is None or header.is_control else decode_transaction_record(key, value)
            if record is None:
                self._skipped_count += 1
            else:
                self.core.replay(record)

    def story(self) -> str:
        core = self.core
        return f"transactional_ids={len(core.values)} open={core.open_count} skipped={self._skipped_count}"

"""Asks the controller for changes of in-sync sets. Kafka's `AlterPartitionManager` (KIP-497).

Many partitions share a request, and one request is in flight at a time. A partition has at most one change, and
proposes the next one after the answer. If the outcome of a request is unknown, its changes that are still pending are
sent again. If the first request had succeeded, the controller answers that the partition epoch differs, and the
partition waits for its metadata.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice

from klamm.errors import ErrorCode
from klamm.wire.v1 import controller_pb2
from klamm.wire.v1.controller_pb2 import AlteredPartition, AlterPartitionRequest
from klamm.wire.v1.controller_rpc import ControllerStub
from klamm_broker.io import metrics
from klamm_broker.io.controller_calls import ControllerCalls
from klamm_broker.replica.leadership import IsrChange
from klamm_broker.replica.partition import CommittedIsr, Partition
from klamm_broker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

CHANGES_MAX = 1_000
"""The most changes in one request."""


class AlterPartitionSender:
    """Sends changes of in-sync sets. `submit` may be called at any time. `run` sends until it is cancelled."""

    def __init__(
        self, replicas: ReplicaManager, calls: ControllerCalls, *, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        self._replicas = replicas
        self._calls = calls
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._unsent: dict[Partition, IsrChange] = {}
        self._has_unsent = asyncio.Event()

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Adds the change to the next request. The partition gets the outcome later."""
        self._unsent[partition] = change
        self._has_unsent.set()

    async def run(self) -> None:
        """Sends changes until it is cancelled."""
        while True:
            await self._has_unsent.wait()
            batch = self._next_batch()
            if not self._unsent:
                self._has_unsent.clear()
            if batch:
                await self._send(batch)

    def _next_batch(self) -> list[tuple[Partition, IsrChange]]:
        """Removes and returns the next changes that are still pending."""
        taken = list(islice(self._unsent.items(), CHANGES_MAX))
        for partition, _ in taken:
            del self._unsent[partition]
        return [(partition, change) for partition, change in taken if partition.is_pending(change)]

    async def _send(self, batch: list[tuple[Partition, IsrChange]]) -> None:
        epoch = self._broker_epoch()
        request = AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=epoch,
            partitions=[self._message(partition, change, epoch) for partition, change in batch],
        )
        response = await self._calls.attempt(ControllerStub.alter_partition, request)
        if response is None or len(response.partitions) != len(batch):
            for partition, change in batch:
                self._replicas.on_isr_refused(partition, change, ErrorCode.REQUEST_TIMED_OUT)
            return
        for (partition, change), answer in zip(batch, response.partitions, strict=True):
            self._apply_answer(partition, change, answer)
        if any(
            answer.error_code and partition in self._unsent
            for (partition, _), answer in zip(batch, response.partitions, strict=True)
        ):
            await self._calls.pause("changes of in-sync sets were refused")

    def _message(self, partition: Partition, change: IsrChange, own_epoch: int) -> controller_pb2.IsrChange:
        return controller_pb2.IsrChange(
            topic_id=partition.topic_id.bytes,
            partition=partition.topic_partition.partition,
            leader_epoch=change.leader_epoch,
            partition_epoch=change.partition_epoch,
            min_isr=partition.log.config.min_insync_replicas,
            new_isr=[
                controller_pb2.IsrMember(
                    broker_id=member.broker_id,
                    broker_epoch=own_epoch if member.broker_id == self._broker_id else member.broker_epoch,
                )
                for member in change.members
            ],
        )

    def _apply_answer(self, partition: Partition, change: IsrChange, answer: AlteredPartition) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is not ErrorCode.NONE:
            metrics.FAILED_ISR_UPDATES.inc()
            log.info(
                "the controller refused an ISR change, partition=%s isr=%s error=%s %s",
                partition.topic_partition,
                change.isr,
                code.name,
                answer.error_message,
            )
            self._replicas.on_isr_refused(partition, change, code)
            return
        before = len(partition.leadership.isr) if partition.leadership is not None else len(answer.isr)
        committed = CommittedIsr(answer.leader_epoch, answer.partition_epoch, tuple(answer.isr))
        log.info(
            "changed the ISR, partition=%s isr=%s partition_epoch=%d",
            partition.topic_partition,
            committed.isr,
            answer.partition_epoch,
        )
        metrics.on_isr_change(before, len(committed.isr))
        self._replicas.on_isr_committed(partition, change, committed)

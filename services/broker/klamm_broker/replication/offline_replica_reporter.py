"""Reports replicas in failed log directories to the controller, so that it elects other leaders (KIP-858).

The report is repeated until the controller has it. A replica is reported once for each registration."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable

from klamm.wire.v1.controller_pb2 import OfflineReplicas, ReportOfflineReplicasRequest
from klamm.wire.v1.controller_rpc import ControllerStub
from klamm_broker.io.controller_calls import ControllerCalls

log = logging.getLogger(__name__)

ReplicaKey = tuple[bytes, int]
"""The topic id (16 bytes) and the partition number."""


class OfflineReplicaReporter:
    """Reports offline replicas. `report` may be called at any time. `run` sends until it is cancelled."""

    def __init__(self, calls: ControllerCalls, *, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._calls = calls
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._unsent: dict[ReplicaKey, None] = {}
        self._has_unsent = asyncio.Event()

    def report(self, topic_id: bytes, partition: int) -> None:
        """Adds a replica that can no longer be read or written to the next report."""
        self._unsent[topic_id, partition] = None
        self._has_unsent.set()

    async def run(self) -> None:
        """Sends reports until it is cancelled."""
        while True:
            await self._has_unsent.wait()
            self._has_unsent.clear()
            batch = dict(self._unsent)
            if await self._calls.attempt(ControllerStub.report_offline_replicas, self._request(batch)) is None:
                self._has_unsent.set()
                continue
            log.info("reported %d offline replicas", len(batch))
            for key in batch:
                del self._unsent[key]

    def _request(self, batch: dict[ReplicaKey, None]) -> ReportOfflineReplicasRequest:
        topics: defaultdict[bytes, list[int]] = defaultdict(list)
        for topic_id, partition in batch:
            topics[topic_id].append(partition)
        return ReportOfflineReplicasRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=[OfflineReplicas(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items()],
        )

"""Tells the controller which replicas of this broker resign and resume, until it knows (`replica/resignations.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Sequence

from klamm.wire.v1.controller_pb2 import ResignedReplicas
from klamm.wire.v1.controller_rpc import ControllerStub
from klamm_broker.io.controller_calls import ControllerCalls
from klamm_broker.replica.resignations import ReplicaKey, Resignations
from klamm_server.metadata.entities import PartitionImage
from klamm_server.metadata.image import MetadataImage

log = logging.getLogger(__name__)

LOOK_MS = 1_000
"""How often the metadata are checked while a replica has resigned, in milliseconds, because a new registration clears
its resignations."""


class ResignationSender:
    """Sends resignations. `resign` and `resume` may be called at any time. `run` sends until it is cancelled."""

    def __init__(
        self,
        calls: ControllerCalls,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._calls = calls
        self._broker_epoch = broker_epoch
        self._image = image
        self._resignations = Resignations(broker_id)
        self._is_due = asyncio.Event()

    def resign(self, key: ReplicaKey, reason: Hashable) -> None:
        """Asks that the replica neither leads nor is in sync, if another in-sync replica can lead.

        This takes effect when the controller has handled it."""
        if self._resignations.resign(key, reason):
            self._is_due.set()

    def resume(self, key: ReplicaKey, reason: Hashable) -> None:
        """Removes `reason`. After the last one, the replica can join the in-sync set and lead again."""
        if self._resignations.resume(key, reason):
            self._is_due.set()

    def note(self, key: ReplicaKey, partition: PartitionImage) -> None:
        """Called after the metadata of a replica's partition changed."""
        if self._resignations.note(key, partition):
            self._is_due.set()

    def resigned_for(self, reason: Hashable) -> list[ReplicaKey]:
        """Returns the replicas that have resigned for that reason."""
        return self._resignations.resigned_for(reason)

    async def run(self) -> None:
        """Sends requests until it is cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_MS / 1000 if len(self._resignations) else None):
                    await self._is_due.wait()
            self._is_due.clear()
            request = self._resignations.next_request(self._image(), broker_epoch=self._broker_epoch())
            if request is None:
                continue
            if await self._calls.attempt(ControllerStub.resign_replicas, request) is None:
                self._is_due.set()
                continue
            self._resignations.on_answer(request)
            log.info(
                "the controller accepted replicas resigned=%d resumed=%d",
                _count(request.resigned),
                _count(request.resumed),
            )


def _count(replicas: Sequence[ResignedReplicas]) -> int:
    return sum(len(topic.partitions) for topic in replicas)

"""A group of one that reads everything and commits, while its coordinators are struck."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict

from klamm.consumer import AsyncConsumer
from klamm.errors import KlammError
from klamm.model import TopicPartition
from tests.chaos.klammchaos.partition_cluster import PARTITIONS, TOPIC
from tests.support.log_checker import Consumption

GROUP = "readers"
POLL_MS = 200


class GroupReader:
    """A reader in a group. At the end it has polled every offset, and has committed the end of each partition."""

    def __init__(self, bootstrap: str) -> None:
        self.consumptions: list[Consumption] = []
        """The consumptions to check. There are none, because a group may read records again whose offsets it did not
        commit."""
        self.led_astray: list[str] = []
        self.committed: dict[TopicPartition, int] = {}
        """The committed offsets in the end."""
        self._bootstrap = bootstrap
        self._polled: defaultdict[TopicPartition, set[int]] = defaultdict(set)

    async def run(self, written: asyncio.Event) -> None:
        async with AsyncConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe([TOPIC])
            while not written.is_set():
                await self._poll_and_commit(consumer)
            partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
            ends = await consumer.end_offsets(partitions)
            while self.committed != ends:
                await self._poll_and_commit(consumer)
                with contextlib.suppress(KlammError):
                    found = await consumer.committed(partitions)
                    self.committed = {partition: one.offset for partition, one in found.items() if one is not None}
            for partition, end in ends.items():
                if missing := set(range(end)) - self._polled[partition]:
                    self.led_astray.append(f"the group never saw {len(missing)} records of {partition}")

    async def _poll_and_commit(self, consumer: AsyncConsumer) -> None:
        try:
            for partition, records in (await consumer.poll(POLL_MS)).items():
                self._polled[partition].update(record.offset for record in records)
            await consumer.commit()
        except KlammError:
            # The group has removed the reader, or has no coordinator. The reader continues at the committed offsets.
            await asyncio.sleep(0.1)

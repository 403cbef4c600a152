"""A client asks for metadata again when it is old."""

from __future__ import annotations

import asyncio
import random

from klamm.cluster.client import KlammClient
from klamm.config import ClientConfig
from tests.support.scripted_broker import ScriptedCluster
from tests.support.waiting import patience


def test_metadata_is_refreshed_when_it_is_old() -> None:
    async def scenario() -> None:
        async with ScriptedCluster().serve() as cluster:
            config = ClientConfig.parse(bootstrap_servers=cluster.bootstrap, metadata_max_age_ms=10)
            client = KlammClient(config, rng=random.Random(1))
            cluster.create_topic("t", 1)
            await client.refresh_metadata(["t"])
            grown = asyncio.Event()
            client.on_change(lambda before, after: grown.set())

            cluster.topics["t"].append(cluster.topics["t"][0])
            await asyncio.wait_for(grown.wait(), patience())

            assert client.cluster.partition_count("t") == 2
            await client.close()

    asyncio.run(scenario())

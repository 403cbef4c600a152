"""Produce and fetch over gRPC against real log dirs."""

from __future__ import annotations

import asyncio

from broker_harness import StartBroker, batch

from klamm.records.decoder import decode_batch


def test_what_is_produced_is_fetched(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2)
            await broker.wait_for_topic("flights", 2)
            produced = await broker.produce("flights", batch(3), partition=1)
            assert (produced.error_code, produced.base_offset, produced.log_start_offset) == (0, 0, 0)
            assert produced.log_append_time_ms == -1
            again = await broker.produce("flights", batch(2), partition=1, acks=1)
            assert again.base_offset == 3
            answer, records = await broker.fetch("flights", 0, partition=1)
            assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 5, 5)
            assert [record.offset for record in decode_batch(records)] == [0, 1, 2]

    asyncio.run(scenario())

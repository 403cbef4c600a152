import asyncio
import contextlib

from worker_pool import run

from klamm import ConsumerRecord, Producer
from klamm.testing import EmbeddedCluster

KEYS, RECORDS = 20, 200


def test_records_are_handled_together_and_each_key_in_order(
    klamm_cluster: EmbeddedCluster, klamm_topic: str, klamm_producer: Producer
) -> None:
    for number in range(RECORDS):
        klamm_producer.send(klamm_topic, b"%d" % number, key=b"key-%d" % (number % KEYS))
    klamm_producer.flush()
    handled: dict[bytes, list[int]] = {}
    under_way, most_under_way = 0, 0

    async def scenario() -> None:
        done = asyncio.Event()

        async def handle(record: ConsumerRecord) -> None:
            nonlocal under_way, most_under_way
            under_way += 1
            most_under_way = max(most_under_way, under_way)
            await asyncio.sleep(0.01)
            under_way -= 1
            handled.setdefault(record.key, []).append(int(record.value))
            if sum(map(len, handled.values())) == RECORDS:
                done.set()

        pool = asyncio.create_task(run(klamm_cluster.bootstrap_servers, klamm_topic, klamm_topic, handle))
        waiting = asyncio.create_task(done.wait())
        await asyncio.wait({pool, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert done.is_set(), pool.exception()
        pool.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pool

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert most_under_way > 1
    assert handled == {b"key-%d" % key: list(range(key, RECORDS, KEYS)) for key in range(KEYS)}

"""Handles records with a pool of asyncio workers, those of one key in order."""

import asyncio
import sys
import zlib
from collections.abc import Awaitable, Callable

from klamm import AsyncConsumer, ConsumerRecord

WORKERS = 100

Handle = Callable[[ConsumerRecord], Awaitable[None]]


async def run(servers: str, topic: str, group: str, handle: Handle, workers: int = WORKERS) -> None:
    """Runs until it is cancelled. An error of `handle` ends it, before the offsets of that poll are committed."""
    queues: list[asyncio.Queue[ConsumerRecord]] = [asyncio.Queue() for _ in range(workers)]

    async def work(queue: asyncio.Queue[ConsumerRecord]) -> None:
        while True:
            record = await queue.get()
            await handle(record)
            queue.task_done()

    async with (
        AsyncConsumer(
            bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
        asyncio.TaskGroup() as pool,
    ):
        consumer.subscribe([topic])
        for queue in queues:
            pool.create_task(work(queue))
        while True:
            for records in (await consumer.poll(1_000)).values():
                for record in records:
                    queues[zlib.crc32(record.key or b"") % workers].put_nowait(record)
            # Finish all records of this poll before the next one, so that every committed record is done.
            await asyncio.gather(*(queue.join() for queue in queues))
            await consumer.commit()


async def show(record: ConsumerRecord) -> None:
    await asyncio.sleep(0.1)
    print(record.key, record.value)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], "worker-pool", show))

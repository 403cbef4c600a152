import asyncio

import app
import httpx
import pytest

from klamm import Consumer
from klamm.testing import EmbeddedCluster


def test_an_order_is_answered_when_it_is_written(
    klamm_cluster: EmbeddedCluster, klamm_topic: str, klamm_consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLAMM_BOOTSTRAP", klamm_cluster.bootstrap_servers)

    async def scenario() -> None:
        transport = httpx.ASGITransport(app=app.app)
        async with app.lifespan(app.app), httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            monkeypatch.setattr(app, "TOPIC", klamm_topic)
            for offset in range(3):
                answer = await client.post("/orders/alice", content=b"%d apples" % offset)
                assert (answer.status_code, answer.json()) == (201, {"partition": 0, "offset": offset})
            monkeypatch.setattr(app, "TOPIC", "no/such/name")
            answer = await client.post("/orders/alice", content=b"pears")
            assert answer.status_code == 503
            assert "no/such/name" in answer.json()["detail"]

    asyncio.run(scenario())
    values: list[bytes | None] = []
    while len(values) < 3:
        for records in klamm_consumer.poll(1_000).values():
            values += [record.value for record in records]
    assert values == [b"0 apples", b"1 apples", b"2 apples"]

"""Takes orders over HTTP, and answers when they are written."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request

from klamm import AsyncProducer, KlammError

TOPIC = os.environ.get("ORDERS_TOPIC", "orders")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    servers = os.environ.get("KLAMM_BOOTSTRAP", "localhost:9094")
    async with AsyncProducer(bootstrap_servers=servers, delivery_timeout_ms=10_000, request_timeout_ms=5_000) as made:
        app.state.producer = made
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{customer}", status_code=201)
async def order(customer: str, request: Request) -> dict[str, int]:
    try:
        future = await app.state.producer.send(TOPIC, await request.body(), key=customer.encode())
        written = await future
    except KlammError as error:
        raise HTTPException(503, f"the order was not written: {error}") from error
    return {"partition": written.partition, "offset": written.offset}

"""Tests that clients with a wrong address or a wrong login raise an error or log a warning.

The error comes at once if another attempt would not help."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klamm import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from klamm.errors import IllegalStateError, KlammError
from klamm.properties import read_properties
from tests.integration.command_line.test_up_secured import SecuredUp, up
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.ports import free_port
from tests.support.waiting import patience, wait_until

FOREVER_MS = 3_600_000
"""A client that waits for as long as it may does not end within the test."""
TP = TopicPartition("t", 0)


class World(NamedTuple):
    plain: KlammProcess
    secured: SecuredUp
    known: dict[str, str]
    """The settings of a client of the secured cluster."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("clusters")
    with running_cluster(directory / "plain") as plain, up(directory / "secured") as secured:
        yield World(plain, secured, read_properties(Path(secured.properties)))


def kafka_port(world: World) -> dict[str, str]:
    return {"bootstrap.servers": world.plain.kafka_bootstrap}


def plain_at_a_tls_listener(world: World) -> dict[str, str]:
    return {"bootstrap.servers": world.secured.bootstrap}


def tls_at_a_plain_listener(world: World) -> dict[str, str]:
    return {**world.known, "security.protocol": "SSL", "bootstrap.servers": world.plain.bootstrap}


def wrong_login(world: World) -> dict[str, str]:
    config = world.known["sasl.jaas.config"].replace('password="', 'password="wrong')
    return {**world.known, "sasl.jaas.config": config, "bootstrap.servers": world.secured.bootstrap}


def unknown_mechanism(world: World) -> dict[str, str]:
    return {**world.known, "sasl.mechanism": "GSSAPI", "bootstrap.servers": world.secured.bootstrap}


REFUSALS = {
    kafka_port: "this is a Kafka listener of Klamm; clients of the gRPC API connect to 127.0.0.1:",
    plain_at_a_tls_listener: "it speaks TLS, which is security.protocol=SSL or SASL_SSL",
    tls_at_a_plain_listener: "it does not speak TLS (security.protocol=PLAINTEXT)",
    wrong_login: "SASL_AUTHENTICATION_FAILED",
    unknown_mechanism: "sasl.mechanism",
}


Settings = dict[str, str]
Goes = Callable[[], bool]
"""Returns whether a consumer shall poll again."""


def producer(settings: Settings, goes: Goes, wait_ms: int) -> None:
    with Producer(settings, max_block_ms=wait_ms) as client:
        client.send("t", b"x")


def consumer(settings: Settings, goes: Goes, wait_ms: int) -> None:
    with Consumer(settings) as client:
        client.assign([TP])
        while goes():
            client.poll(100)


def member(settings: Settings, goes: Goes, wait_ms: int) -> None:
    with Consumer(settings, group_id="g") as client:
        client.subscribe(["t"])
        while goes():
            client.poll(100)


def admin(settings: Settings, goes: Goes, wait_ms: int) -> None:
    with Admin(settings, default_api_timeout_ms=wait_ms) as client:
        client.list_topics()


async def _produce(settings: Settings, wait_ms: int) -> None:
    async with AsyncProducer(settings, max_block_ms=wait_ms) as client:
        await client.send("t", b"x")


async def _consume(settings: Settings, goes: Goes) -> None:
    async with AsyncConsumer(settings) as client:
        client.assign([TP])
        while goes():
            await client.poll(100)


async def _list_topics(settings: Settings, wait_ms: int) -> None:
    async with AsyncAdmin(settings, default_api_timeout_ms=wait_ms) as client:
        await client.list_topics()


def async_producer(settings: Settings, goes: Goes, wait_ms: int) -> None:
    asyncio.run(_produce(settings, wait_ms))


def async_consumer(settings: Settings, goes: Goes, wait_ms: int) -> None:
    asyncio.run(_consume(settings, goes))


def async_admin(settings: Settings, goes: Goes, wait_ms: int) -> None:
    asyncio.run(_list_topics(settings, wait_ms))


CLIENTS = (producer, consumer, member, admin, async_producer, async_consumer, async_admin)


@pytest.mark.parametrize("use", CLIENTS)
@pytest.mark.parametrize("settings", REFUSALS)
def test_what_another_attempt_would_not_mend_is_an_error_at_once(
    world: World, settings: Callable[[World], Settings], use: Any
) -> None:
    with pytest.raises(KlammError) as raised:
        use(settings(world), lambda: True, FOREVER_MS)
    assert REFUSALS[settings] in str(raised.value)
    assert not raised.value.retriable


@pytest.mark.parametrize("settings", REFUSALS)
def test_the_command_line_says_the_same(world: World, settings: Callable[[World], Settings], tmp_path: Path) -> None:
    chosen = settings(world)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
    klamm = KlammCommand(chosen["bootstrap.servers"])
    ended = klamm("topics", "list", "--timeout", patience(), "--command-config", file)
    assert ended.status != 0
    assert REFUSALS[settings] in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.fixture
def dead() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def dropping() -> Iterator[str]:
    """Yields an address that drops packets. Its server accepts no connection, and the queue of connections is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(address)
            yield f"127.0.0.1:{address[1]}"


@pytest.mark.parametrize("use", CLIENTS)
@pytest.mark.parametrize("address", ["dead", "dropping"])
def test_what_may_mend_itself_is_a_warning(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, use: Any, address: str
) -> None:
    bootstrap = request.getfixturevalue(address)
    text = f"no server answers at {bootstrap} ("
    settings = {"bootstrap.servers": bootstrap, "socket.connection.setup.timeout.ms": "1000"}
    caplog.set_level(logging.WARNING)
    is_warned = threading.Event()

    def run() -> None:
        with contextlib.suppress(KlammError):
            use(settings, lambda: not is_warned.is_set(), 5_000)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: text in caplog.text)
    is_warned.set()
    thread.join(patience())
    assert not thread.is_alive()


def test_a_poll_without_topics_and_partitions_is_an_error(world: World) -> None:
    """Kafka's client raises the same."""
    text = "not subscribed to any topics or assigned any partitions"
    with Consumer(bootstrap_servers=world.plain.bootstrap, group_id="g") as client:
        with pytest.raises(IllegalStateError, match=text):
            client.poll(FOREVER_MS)
        with pytest.raises(IllegalStateError, match=text):
            next(iter(client))
        client.assign([])
        assert client.poll(0) == {}
        client.unsubscribe()
        with pytest.raises(IllegalStateError, match=text):
            client.poll(FOREVER_MS)

    async def poll() -> None:
        async with AsyncConsumer(bootstrap_servers=world.plain.bootstrap) as client:
            await client.poll(FOREVER_MS)

    with pytest.raises(IllegalStateError, match=text):
        asyncio.run(poll())

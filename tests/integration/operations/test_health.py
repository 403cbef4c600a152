"""Tests the health state of servers as a container engine's probe receives it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from pathlib import Path

import pytest

from klamm.health import LIVENESS, ProbeError, check, main
from klamm.security.tls_settings import ListenerTlsSettings
from klamm.wire.v1.broker_rpc import BROKER
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.awaitable_flag import AwaitableFlag
from klamm_server.security.server_tls import ServerTls
from tests.support.certificates import ca, client, replace, server, write_stores
from tests.support.ports import closed_port
from tests.support.waiting import patience, until

HOST = "127.0.0.1"


def _ask(port: int, service: str = "") -> str:
    return check(HOST, port, service=service, timeout_s=patience())


async def _until(status: str, port: int, service: str = "") -> None:
    async def is_told() -> bool:
        return await asyncio.to_thread(_ask, port, service) == status

    await until(is_told)


def test_health_is_serving_only_while_the_server_serves(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        rpc, serving = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100), AwaitableFlag()
        port = await rpc.start(HOST, 0)
        reporting = asyncio.create_task(rpc.report_health(serving.wait))
        try:
            assert await asyncio.to_thread(_ask, port) == "NOT_SERVING"
            assert await asyncio.to_thread(_ask, port, LIVENESS) == "SERVING"
            assert await asyncio.to_thread(main, [f"{HOST}:{port}"]) == 1
            for on, status in ((True, "SERVING"), (False, "NOT_SERVING"), (True, "SERVING")):
                serving.set(on)
                await _until(status, port)
                assert await asyncio.to_thread(_ask, port, LIVENESS) == "SERVING"
            assert await asyncio.to_thread(main, [f"{HOST}:{port}"]) == 0
            with pytest.raises(ProbeError, match="no health service knows 'frob'"):
                await asyncio.to_thread(_ask, port, "frob")
        finally:
            reporting.cancel()
            await rpc.stop(0)

    asyncio.run(scenario())
    assert capsys.readouterr().out == "NOT_SERVING\nSERVING\n"


def test_the_health_of_a_service_is_that_of_its_server() -> None:
    async def scenario() -> None:
        rpc, serving = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100), AwaitableFlag()
        rpc.add_service(BROKER, _Nothing())
        port = await rpc.start(HOST, 0)
        try:
            assert await asyncio.to_thread(_ask, port, BROKER.name) == "NOT_SERVING"
            reporting = asyncio.create_task(rpc.report_health(serving.wait))
            serving.set(True)
            await _until("SERVING", port, BROKER.name)
            reporting.cancel()
        finally:
            await rpc.stop(0)

    asyncio.run(scenario())


def test_connections_beyond_the_limit_are_closed_until_another_one_ends() -> None:
    async def scenario() -> None:
        rpc = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100, max_connections=3)
        port = await rpc.start(HOST, 0)
        silent = [await asyncio.open_connection(HOST, port) for _ in range(3)]
        try:
            # gRPC sends its settings to each accepted connection.
            assert all([await reader.read(1) for reader, _ in silent])
            with pytest.raises(ProbeError):
                await asyncio.to_thread(_ask, port, LIVENESS)
            silent.pop()[1].close()
            await _until_served(port)
        finally:
            for _, writer in silent:
                writer.close()
            await rpc.stop(0)

    asyncio.run(scenario())


async def _until_served(port: int) -> None:
    async def is_served() -> bool:
        with contextlib.suppress(ProbeError):
            return await asyncio.to_thread(_ask, port, LIVENESS) == "SERVING"
        return False

    await until(is_served)


class _Nothing:
    """A service that has every RPC and answers none."""

    def __getattr__(self, name: str) -> object:
        async def refuse(request: object, context: object) -> None:
            raise AssertionError(name)

        return refuse


@pytest.mark.parametrize(
    ("answer", "problem"), [(b"", "it closed the connection"), (b"HTTP/1.1 400 Bad Request\r\n", "HTTP/2")]
)
def test_a_health_check_of_a_foreign_server_fails_and_names_the_problem(
    answer: bytes, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        status = main([f"{HOST}:{port}", "--timeout", str(patience())])
        thread.join()
    assert status == 1
    assert problem in capsys.readouterr().out


def test_a_health_check_of_a_closed_port_reports_connection_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with closed_port() as port:
        assert main([f"{HOST}:{port}"]) == 1
    assert "refused" in capsys.readouterr().out


def test_a_health_check_reads_its_tls_settings_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        stores = write_stores(tmp_path / "server", server())
        given = {**stores.settings(), "ssl.client.auth": "required"}
        rpc = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100)
        port = await rpc.start(HOST, 0, tls=ServerTls("OUT", ListenerTlsSettings.parse(given)))
        file = tmp_path / "client.properties"
        replace(tmp_path / "client.pem", client().certificate_pem + client().encrypted_key_pem("s3cret"))
        asking = {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(tmp_path / "client.pem"),
            "ssl.key.password": "s3cret",
            "ssl.truststore.location": str(stores.truststore),
        }
        try:
            for changes, told in (
                ({}, "NOT_SERVING"),
                ({"security.protocol": "PLAINTEXT"}, "it closed the connection"),
                ({"ssl.truststore.location": str(_foreign(tmp_path))}, "certificate verify failed"),
                ({"ssl.key.password": "wrong"}, "SSL"),
            ):
                file.write_text("".join(f"{name} = {text}\n" for name, text in {**asking, **changes}.items()))
                assert await asyncio.to_thread(main, [f"{HOST}:{port}", "--config", str(file)]) == 1
                said = capsys.readouterr().out
                assert told in said
                assert "s3cret" not in said
        finally:
            await rpc.stop(0)

    asyncio.run(scenario())


def _foreign(directory: Path) -> Path:
    replace(directory / "foreign.pem", ca("Foreign CA").signed.certificate_pem)
    return directory / "foreign.pem"

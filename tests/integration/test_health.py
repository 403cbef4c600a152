"""What servers say of their health, as the probe of a container engine hears it."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from klamm.health import LIVENESS, ProbeError, check, main
from klamm.wire.service import BROKER
from klamm_server.rpc_server import RpcServer
from klamm_server.switch import Switch

HOST = "127.0.0.1"


def _ask(port: int, service: str = "") -> str:
    return check(HOST, port, service=service, timeout_s=30)


async def _until(status: str, port: int, service: str = "") -> None:
    async with asyncio.timeout(30):
        while await asyncio.to_thread(_ask, port, service) != status:
            pass


def test_health_follows_the_servers_part_in_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        rpc, serving = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100), Switch()
        port = await rpc.start(HOST, 0)
        reporting = asyncio.create_task(rpc.report_health(serving.wait))
        try:
            assert await asyncio.to_thread(_ask, port) == "NOT_SERVING"
            assert await asyncio.to_thread(_ask, port, LIVENESS) == "SERVING"
            assert await asyncio.to_thread(main, [f"{HOST}:{port}"]) == 1
            for on, status in ((True, "SERVING"), (False, "NOT_SERVING"), (True, "SERVING")):
                serving.turn(on)
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
        rpc, serving = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100), Switch()
        rpc.add_service(BROKER, _Nothing())
        port = await rpc.start(HOST, 0)
        try:
            assert await asyncio.to_thread(_ask, port, BROKER.full_name) == "NOT_SERVING"
            reporting = asyncio.create_task(rpc.report_health(serving.wait))
            serving.turn(True)
            await _until("SERVING", port, BROKER.full_name)
            reporting.cancel()
        finally:
            await rpc.stop(0)

    asyncio.run(scenario())


class _Nothing:
    """Has every RPC, and answers none."""

    def __getattr__(self, name: str) -> object:
        async def refuse(request: object, context: object) -> None:
            raise AssertionError(name)

        return refuse


@pytest.mark.parametrize(
    ("answer", "problem"), [(b"", "it closed the connection"), (b"HTTP/1.1 400 Bad Request\r\n", "HTTP/2")]
)
def test_what_is_no_server_of_ours_is_said_to_be_none(
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
        status = main([f"{HOST}:{port}", "--timeout", "30"])
        thread.join()
    assert status == 1
    assert problem in capsys.readouterr().out


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    assert main([f"{HOST}:{port}"]) == 1
    assert "refused" in capsys.readouterr().out

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from klamm.cluster.client import KlammClient
from klamm.cluster.metadata import ClusterView, Node
from klamm.config import ClientConfig
from klamm.errors import EXCEPTIONS, ErrorCode, IllegalStateError, KlammError, NoBrokerError, WrongListenerError
from klamm.model import TopicPartition
from klamm.wire.v1 import broker_pb2, common_pb2
from klamm.wire.v1.broker_rpc import BrokerStub
from tests.support.loop_time import run_without_waiting
from tests.support.ports import closed_port
from tests.support.scripted_broker import ScriptedCluster
from tests.support.waiting import patience

FOREVER_MS = 3_600_000
NetworkError = EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION]


def with_client(
    body: Callable[[KlammClient, ScriptedCluster], Awaitable[None]],
    cluster: ScriptedCluster | None = None,
    **settings: Any,
) -> None:
    async def main() -> None:
        async with (cluster or ScriptedCluster()).serve() as served:
            settings.setdefault("bootstrap_servers", served.bootstrap)
            client = KlammClient(ClientConfig.parse(**settings), rng=random.Random(1))
            try:
                await body(client, served)
            finally:
                await client.close()

    asyncio.run(main())


async def metadata(broker: BrokerStub) -> broker_pb2.MetadataResponse:
    return await broker.metadata(broker_pb2.MetadataRequest())


@contextlib.asynccontextmanager
async def wrong_listener() -> AsyncIterator[str]:
    """Yields the address of a gRPC server that does not serve clients."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def test_refresh_learns_topics_and_servers() -> None:
    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        cluster.create_topic("t", 3)

        view = await client.refresh_metadata(["t"])

        assert view is client.cluster
        assert view.cluster_id == "scripted"
        assert view.partition_count("t") == 3
        assert [node.port for node in view.brokers.values()] == cluster.ports

    with_client(body, ScriptedCluster(broker_count=2))


def test_unknown_topic_is_reported_in_the_view() -> None:
    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        view = await client.refresh_metadata(["missing"])

        assert view.topic_errors == {"missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    with_client(body)


def test_concurrent_metadata_refreshes_share_one_request() -> None:
    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        for name in ("a", "b", "c"):
            cluster.create_topic(name, 1)

        await asyncio.gather(*(client.refresh_metadata([name]) for name in ("a", "b", "c")))

        assert set(client.cluster.topics) == {"a", "b", "c"}
        assert cluster.metadata_count == 1

    with_client(body)


def test_a_refresh_cancelled_while_the_client_closes_raises_cancelled_error() -> None:
    """If the caller were told that the client is closed, a task that continues after errors would never end.

    Then `close` would never end either.
    """

    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        await client._refreshing.acquire()  # the refresh waits for another refresh
        asking = asyncio.create_task(client.refresh_metadata(["t"]))
        await asyncio.sleep(0)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking, closing}, timeout=30)
        assert closing.done()
        assert asking.cancelled()

    with_client(body)


def test_listeners_are_called_only_if_the_metadata_changed() -> None:
    heard: list[tuple[ClusterView, ClusterView]] = []

    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        cluster.create_topic("t", 1)
        client.on_change(lambda before, after: heard.append((before, after)))

        await client.refresh_metadata(["t"])
        await client.refresh_metadata(["t"])

        assert heard == [(ClusterView(), client.cluster)]

    with_client(body)


def test_second_bootstrap_server_is_asked_when_the_first_is_down() -> None:
    async def main(down: int) -> None:
        async with ScriptedCluster().serve() as cluster:
            config = ClientConfig.parse(bootstrap_servers=f"127.0.0.1:{down},{cluster.bootstrap}")
            client = KlammClient(config)
            assert (await client.refresh_metadata([])).brokers
            await client.close()

    with closed_port() as down:
        asyncio.run(main(down))


def test_second_bootstrap_server_is_asked_when_the_first_is_silent() -> None:
    async def main(silent: int) -> None:
        async with ScriptedCluster().serve() as cluster:
            config = ClientConfig.parse(
                bootstrap_servers=f"127.0.0.1:{silent},{cluster.bootstrap}",
                request_timeout_ms=FOREVER_MS,
                socket_connection_setup_timeout_ms=FOREVER_MS,
                socket_connection_setup_timeout_max_ms=FOREVER_MS,
            )
            client = KlammClient(config)
            async with asyncio.timeout(patience()):
                assert (await client.refresh_metadata([])).brokers
            await client.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(main(silent.getsockname()[1]))


def test_a_wrong_address_is_no_reason_to_give_up_a_cluster_that_has_answered() -> None:
    async def main() -> None:
        async with wrong_listener() as wrong:
            async with ScriptedCluster().serve() as cluster:
                client = KlammClient(ClientConfig.parse(bootstrap_servers=f"{cluster.bootstrap},{wrong}"))
                assert (await client.refresh_metadata([])).brokers
            with pytest.raises(NoBrokerError) as raised:
                await client.refresh_metadata([])
            assert raised.value.retriable
            assert client.take_refusal() is None
            await client.close()

    asyncio.run(main())


def test_a_wrong_address_beside_a_dead_one_is_final_at_the_start() -> None:
    async def main(dead: int) -> None:
        async with wrong_listener() as wrong:
            client = KlammClient(ClientConfig.parse(bootstrap_servers=f"127.0.0.1:{dead},{wrong}"))
            with pytest.raises(WrongListenerError):
                await client.refresh_metadata([])
            await client.close()

    with closed_port() as dead:
        asyncio.run(main(dead))


def test_a_wrong_address_beside_a_cluster_that_starts_is_not_final() -> None:
    async def main() -> None:
        async with wrong_listener() as wrong, ScriptedCluster().serve() as starting:
            starting.broker_count = 0
            client = KlammClient(ClientConfig.parse(bootstrap_servers=f"{starting.bootstrap},{wrong}"))
            with pytest.raises(NoBrokerError, match="a server knows of no live broker") as raised:
                await client.refresh_metadata([])
            assert raised.value.retriable
            await client.close()

    asyncio.run(main())


def test_unreachable_bootstrap_servers_raise_a_no_broker_error_that_names_them() -> None:
    async def main(address: str) -> None:
        client = KlammClient(ClientConfig.parse(bootstrap_servers=address))
        with pytest.raises(NoBrokerError, match=address):
            await client.refresh_metadata([])
        await client.close()

    with closed_port() as down:
        asyncio.run(main(f"127.0.0.1:{down}"))


def test_a_call_to_a_server_that_does_not_answer_times_out() -> None:
    async def main(address: str) -> None:
        client = KlammClient(ClientConfig.parse(bootstrap_servers=address, request_timeout_ms=20))
        with pytest.raises(NoBrokerError, match=f"REQUEST_TIMED_OUT: metadata at {address}"):
            await client.ask_any_broker(metadata)
        await client.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(main(f"127.0.0.1:{silent.getsockname()[1]}"))


def test_a_pending_call_ends_when_the_client_closes() -> None:
    async def main(silent: socket.socket) -> None:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        client = KlammClient(ClientConfig.parse(bootstrap_servers=address))
        call = asyncio.ensure_future(client.ask_any_broker(metadata))
        connection, _ = await asyncio.get_running_loop().sock_accept(silent)
        await client.close()
        with pytest.raises(IllegalStateError, match="closed"):
            await call
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        asyncio.run(main(silent))


def test_a_pending_metadata_refresh_says_that_the_client_is_closed() -> None:
    async def main(silent: socket.socket) -> None:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        client = KlammClient(ClientConfig.parse(bootstrap_servers=address))
        refresh = asyncio.create_task(client.refresh_metadata([]))
        connection, _ = await asyncio.get_running_loop().sock_accept(silent)
        await client.close()
        with pytest.raises(IllegalStateError, match="closed"):
            await refresh
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        asyncio.run(main(silent))


def test_a_call_that_the_server_does_not_implement_raises_an_error_that_names_it() -> None:
    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        await client.refresh_metadata([])
        with pytest.raises(EXCEPTIONS[ErrorCode.UNSUPPORTED_VERSION], match="list_offsets"):
            await client.broker(0).list_offsets(broker_pb2.ListOffsetsRequest())

    with_client(body)


def test_a_broker_missing_in_the_metadata_raises_a_no_broker_error() -> None:
    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        await client.refresh_metadata([])
        with pytest.raises(NoBrokerError, match="broker 7"):
            client.broker(7)

    with_client(body)


def test_controller_is_not_known_before_metadata() -> None:
    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        with pytest.raises(NoBrokerError, match="controller"):
            client.admin()
        await client.refresh_metadata([])
        assert client.admin().create_topics

    with_client(body)


def test_coordinator_is_remembered_until_forgotten() -> None:
    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        cluster.coordinator_errors.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        with pytest.raises(EXCEPTIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE]):
            await client.coordinator_for("g")

        first = await client.coordinator_for("g")
        cluster.coordinator_errors.append(ErrorCode.INVALID_GROUP_ID)
        assert await client.coordinator_for("g") is first

        client.forget_coordinator("g")
        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_GROUP_ID]):
            await client.coordinator_for("g")

    with_client(body)


def test_the_same_leader_hint_changes_the_view_only_once() -> None:
    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        cluster.create_topic("t", 1, leaders=[0])
        await client.refresh_metadata(["t"])
        tp = TopicPartition("t", 0)

        assert client.update_leader(tp, 1, 1)
        assert not client.update_leader(tp, 1, 1)
        leader = client.cluster.leader_of(tp)
        assert leader is not None
        assert leader.node_id == 1

    with_client(body, ScriptedCluster(broker_count=2))


def test_retrying_repeats_retriable_errors_only() -> None:
    outcomes: list[KlammError | None] = [NetworkError("first"), NoBrokerError("second"), None]

    async def operation() -> str:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return "done"

    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        assert await client.retrying(operation, timeout_ms=60_000) == "done"
        outcomes.extend([EXCEPTIONS[ErrorCode.INVALID_REQUEST]("no"), None])
        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_REQUEST]):
            await client.retrying(operation, timeout_ms=60_000)

    with_client(body, retry_backoff_ms=0)


def test_retrying_ends_with_the_last_error_when_time_is_up() -> None:
    class ClientWithoutServer(KlammClient):
        async def refresh_metadata(self, topics: object = None) -> ClusterView:
            return self.cluster

    async def operation() -> None:
        raise NoBrokerError("nobody")

    async def main() -> None:
        client = ClientWithoutServer(ClientConfig.parse(retry_backoff_ms=5), rng=random.Random(1))
        with pytest.raises(NoBrokerError, match="nobody"):
            await client.retrying(operation, timeout_ms=60_000)
        await client.close()

    run_without_waiting(main())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_retry_pauses_stay_short_for_the_first_second_without_a_coordinator(code: ErrorCode) -> None:
    """The test lasts for a second of failures with pauses of maximum length.

    No pause may exceed a third of a second.
    """

    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        client.rng = SimpleNamespace(uniform=lambda low, high: high)
        passed_ms, pauses_ms = 0.0, []
        while passed_ms < 1_000:
            pauses_ms.append(client.pause_ms(EXCEPTIONS[code](), len(pauses_ms) + 1))
            passed_ms += pauses_ms[-1]
        assert max(pauses_ms) < 1_000 / 3
        assert client.pause_ms(EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER](), 4) > 800
        assert client.pause_ms(EXCEPTIONS[code](), 100) == client.config.retry_backoff_max_ms

    with_client(body)


def test_a_closed_client_refuses_calls() -> None:
    async def body(client: KlammClient, cluster: ScriptedCluster) -> None:
        await client.close()
        with pytest.raises(IllegalStateError, match="closed"):
            await client.refresh_metadata([])
        with pytest.raises(IllegalStateError, match="closed"):
            await client.ask_any_broker(metadata)

    with_client(body)


def test_admin_calls_follow_the_controllers_hints_to_the_active_controller() -> None:
    def asked(client: KlammClient) -> str:
        before = set(client._connections)
        client.admin()
        (new,) = set(client._connections) - before or {""}
        return new

    async def main() -> None:
        client = KlammClient(ClientConfig.parse())
        try:
            with pytest.raises(NoBrokerError):
                client.admin()
            client.leave_controller(None)
            client.cluster = ClusterView(
                controllers=tuple(Node(node_id=port, host="h", port=port) for port in (1, 2, 3))
            )
            assert asked(client) == "h:1"
            client.leave_controller(common_pb2.Endpoint(host="h", port=3))
            assert asked(client) == "h:3"
            client.leave_controller(common_pb2.Endpoint(host="elsewhere", port=9))
            assert asked(client) == "elsewhere:9"
            client.leave_controller(None)
            assert asked(client) == "", "the first one again: it has a connection"
            client.leave_controller(common_pb2.Endpoint())
            assert asked(client) == "h:2"
        finally:
            await client.close()

    asyncio.run(main())

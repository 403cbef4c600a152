"""A client's connections to the cluster, the current ClusterView, and the choice of the server for each request.

Everything runs on one event loop. `cluster` changes only here; an object that depends on it registers with `on_change`.
Metadata requests are coalesced: callers that arrive while one is under way share the next. Failures to reach servers
are NetworkError, RequestTimedOutError or NoBrokerError, never errors of the transport library."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from klamm.client_task import client_task
from klamm.cluster.bootstrap import first_answer
from klamm.cluster.metadata import ClusterView, Node, TopicView, node_of, server_address
from klamm.cluster.outage import Outage
from klamm.cluster.record_calls import RecordCalls
from klamm.config import ClientConfig
from klamm.errors import (
    EXCEPTIONS,
    AuthenticationError,
    ClosedError,
    ErrorCode,
    KlammError,
    NoBrokerError,
    WrongListenerError,
    raise_for,
)
from klamm.model import TopicPartition
from klamm.ordered_set import OrderedSet
from klamm.process import PROCESS
from klamm.retry import NEWS_MULTIPLIER, Backoff
from klamm.rpc.cancellation import is_cancelled
from klamm.rpc.client_records import record_dialler
from klamm.rpc.client_sasl import client_sasl
from klamm.rpc.client_tls import client_tls
from klamm.rpc.connection import Connection
from klamm.rpc.grpc_transport import GrpcTransport
from klamm.rpc.handshakes import SPEAKS_KAFKA, SPEAKS_TLS
from klamm.rpc.options import client_options
from klamm.rpc.status import CallFailed
from klamm.rpc.transport import TRANSPORT, Transport
from klamm.several_calls import until_all_ended
from klamm.wire.framed import Buffer
from klamm.wire.v1 import broker_pb2, common_pb2
from klamm.wire.v1.broker_rpc import BROKER, BrokerStub
from klamm.wire.v1.controller_rpc import ADMIN, AdminStub
from klamm.wire.v1.coordinator_rpc import COORDINATOR, CoordinatorStub

T = TypeVar("T")
GROUP = broker_pb2.COORDINATOR_KEY_TYPE_GROUP
TRANSACTION = broker_pb2.COORDINATOR_KEY_TYPE_TRANSACTION
_COORDINATOR_AWAY: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""The errors of calls to a coordinator while it is dead and no other coordinator has taken over."""
_PATIENCE_S: Final = 1
"""How long one server may be silent before a metadata request goes to the next one as well."""
_NetworkError: Final = EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION]
_RequestTimedOutError: Final = EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT]
ChangeListener = Callable[[ClusterView, ClusterView], None]
"""Called with the view before and after."""


class KlammClient:
    """The connections and the metadata of one client. Create and use it on a running event loop.

    With `allow_auto_topic_creation`, a metadata request may create a missing topic, if the cluster allows that. Raises
    IllegalStateError in a process that was forked from a process with a client."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        allow_auto_topic_creation: bool = False,
        rng: random.Random | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.config = config
        tls, sasl = client_tls(config), client_sasl(config)
        transport = transport or TRANSPORT.get()
        self._transport = transport or GrpcTransport(traces=lambda: config.tracing_enable, tls=tls, sasl=sasl)
        self.cluster = ClusterView()
        self.backoff = Backoff(initial_ms=config.retry_backoff_ms, max_ms=config.retry_backoff_max_ms)
        self._news_backoff = Backoff(
            initial_ms=config.retry_backoff_ms, max_ms=config.retry_backoff_max_ms, multiplier=NEWS_MULTIPLIER
        )
        self.rng = rng or PROCESS.get().make_rng()
        self._records = RecordCalls(
            record_dialler(config, sasl) if transport is None else None,
            self.rng,
            timeout_ms=config.request_timeout_ms,
        )
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._connections: dict[str, Connection] = {}
        self._coordinators: dict[tuple[int, str], Node] = {}
        self._controller_address = ""
        """The host:port of the controller that gets the next request. Empty means the first controller in the
        metadata.
        """
        self._listeners: list[ChangeListener] = []
        self._refusal_listeners: list[Callable[[], object]] = []
        self._refusal: KlammError | None = None
        self._outage = Outage(config.client_id, config.bootstrap_servers)
        self._tracked: set[str] = set()
        self._tracks_all = False
        self._next_refresh: _Refresh | None = None
        self._refreshing = asyncio.Lock()
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._ages = False
        self.is_closed = False
        """True after `close` was called."""

    # Metadata

    def on_change(self, listener: ChangeListener) -> None:
        """Calls `listener` on the loop whenever `cluster` has changed."""
        self._listeners.append(listener)

    def on_refusal(self, listener: Callable[[], object]) -> None:
        """Calls `listener` on the loop whenever there is another error for `take_refusal`."""
        self._refusal_listeners.append(listener)

    def take_refusal(self) -> KlammError | None:
        """Removes and returns the error of the last metadata request, if another attempt would not help."""
        refusal, self._refusal = self._refusal, None
        return refusal

    async def refresh_metadata(self, topics: Iterable[str] | None = None) -> ClusterView:
        """Requests metadata about `topics`, or about all topics if it is None. Returns a view at least as new as this
        call.

        The client refreshes every requested topic each `metadata.max.age.ms` from then on. The view's `topic_errors`
        has the topics that could not be described. Raises NoBrokerError if no server answers. Raises an
        AuthenticationError if no server answers and an authentication with one of them failed."""
        self._require_open()
        names = None if topics is None else set(topics)
        self._track(names)
        refresh = self._next_refresh
        if refresh is None:
            refresh = self._next_refresh = _Refresh()
            refresh.task = self._spawn(self._run(refresh), "metadata-refresh")
        refresh.add(names)
        assert refresh.task is not None
        try:
            await asyncio.shield(refresh.task)
        except asyncio.CancelledError:
            if refresh.task.cancelled() and not is_cancelled():
                self._require_open()  # `close` cancelled the task, and nothing cancelled the caller
            raise
        return self.cluster

    def update_leader(
        self, tp: TopicPartition, leader: int, leader_epoch: int, nodes: Iterable[common_pb2.Node] = ()
    ) -> bool:
        """Applies a broker's hint about a leader, with the nodes that came with the hint (KIP-951). Returns whether the
        view changed."""
        before = self.cluster
        self._install(before.with_leader(tp, leader, leader_epoch, map(node_of, nodes)))
        return self.cluster is not before

    def learn_topics(self, topics: Collection[TopicView]) -> None:
        """Adds topics that another response than Metadata described. They are refreshed like topics that were
        requested."""
        self._track({topic.name for topic in topics})
        self._install(self.cluster.with_topics(topics))

    # Whom to ask

    def broker(self, node_id: int) -> BrokerStub:
        """Returns the Broker API of the broker `node_id`. Raises NoBrokerError if the current view does not have it."""
        node = self.cluster.brokers.get(node_id)
        if node is None:
            raise NoBrokerError(f"broker {node_id} is not among the live brokers")
        return self._connection(node.address).stub(BROKER)

    async def produce(
        self, node_id: int, header: broker_pb2.ProduceHeader, records: Sequence[Buffer]
    ) -> broker_pb2.ProduceResponse:
        """Sends a Produce request with the concatenated `records` to a broker. Raises NoBrokerError if the current view
        does not have the broker, or an error of the transport."""
        broker = self.broker(node_id)
        return await self._records.produce(broker, self.cluster.kafka_listener(node_id), header, records)

    async def fetch(self, node_id: int, request: broker_pb2.FetchRequest, *, timeout_ms: int) -> Buffer:
        """Fetches from a broker and returns a FetchResponse. Raises NoBrokerError if the current view does not have the
        broker, or an error of the transport."""
        broker = self.broker(node_id)
        return await self._records.fetch(broker, self.cluster.kafka_listener(node_id), request, timeout_ms=timeout_ms)

    async def ask_any_broker(self, ask: Callable[[BrokerStub], Awaitable[T]]) -> T:
        """Returns the first answer of the live brokers in random order, or of the bootstrap servers.

        `ask` makes one call that may be made twice. A server that is silent for a second does not delay it further. If
        no server answers, raises the AuthenticationError of one of them, WrongListenerError, or NoBrokerError
        (retriable) with the errors of all."""
        self._require_open()

        def at(address: str) -> Awaitable[T]:
            return ask(self._connection(address).stub(BROKER))

        answer, errors = await first_answer(self._addresses(), at, patience_s=_PATIENCE_S)
        if answer is not None:
            return answer
        self._require_open()
        for error in errors:
            if isinstance(error, AuthenticationError):
                raise error
        raise self._kind_of(errors)(f"no server answered: {'; '.join(map(str, errors))}")

    def admin(self) -> AdminStub:
        """Returns the Admin API of the active controller. Raises NoBrokerError before the first metadata."""
        if not self.cluster.controllers:
            raise NoBrokerError("the active controller is not known")
        return self._connection(self.controller_address).stub(ADMIN)

    @property
    def controller_address(self) -> str:
        """The host:port of the controller that gets the next request. The metadata must name at least one."""
        return self._controller_address or self.cluster.controllers[0].address

    def leave_controller(self, active: common_pb2.Endpoint | None) -> None:
        """Selects another controller, after one did not answer or is not the active one. The next is `active` if the
        controller named it, otherwise the next one in the metadata."""
        if active is not None and active.host:
            self._controller_address = server_address(active.host, active.port)
            return
        addresses = [node.address for node in self.cluster.controllers]
        if addresses:
            asked = self._controller_address or addresses[0]
            following = addresses.index(asked) + 1 if asked in addresses else 0
            self._controller_address = addresses[following % len(addresses)]

    async def coordinator_for(self, key: str, key_type: broker_pb2.CoordinatorKeyType = GROUP) -> CoordinatorStub:
        """Returns the API of the coordinator that owns the group or transactional id. The client caches the coordinator
        until `forget_coordinator`.

        Makes one attempt. Raises CoordinatorNotAvailableError (retriable) if there is no coordinator,
        InvalidGroupIdError, or an error of the transport."""
        node = self._coordinators.get((key_type, key))
        if node is None:
            node = self._coordinators[key_type, key] = await self._find_coordinator(key, key_type)
        return self._connection(node.address).stub(COORDINATOR)

    def coordinator_node(self, group_id: str) -> Node | None:
        """Returns the cached coordinator of the group, or None."""
        return self._coordinators.get((GROUP, group_id))

    def coordinator(self, node_id: int) -> CoordinatorStub:
        """Returns the Coordinator API of the coordinator `node_id`. Raises CoordinatorNotAvailableError if it is not
        known."""
        node = self.cluster.coordinators.get(node_id)
        if node is None:
            raise EXCEPTIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE](f"coordinator {node_id} is not known")
        return self._connection(node.address).stub(COORDINATOR)

    def forget_coordinator(self, key: str, key_type: broker_pb2.CoordinatorKeyType = GROUP) -> None:
        """Drops the cached coordinator after NOT_COORDINATOR or a network error. The next call looks the coordinator up
        again."""
        self._coordinators.pop((key_type, key), None)

    # Retries and the end

    async def retrying(self, operation: Callable[[], Awaitable[T]], *, timeout_ms: int) -> T:
        """Calls `operation` again after each retriable KlammError, with backoff, for at most `timeout_ms` in total.

        Refreshes the metadata after errors that require it. Raises the last error."""
        failure: KlammError | None = None
        failures = 0
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    try:
                        return await operation()
                    except KlammError as error:
                        if not error.retriable:
                            raise
                        failure = error
                    failures += 1
                    if getattr(failure, "refresh_metadata", False):
                        with contextlib.suppress(KlammError):
                            await self.refresh_metadata(self._tracked_topics())
                    await asyncio.sleep(self.pause_ms(failure, failures) / 1000)
        except TimeoutError:
            raise failure or EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT](f"after {timeout_ms} ms") from None

    def pause_ms(self, error: KlammError, failures: int) -> float:
        """Returns the pause after `failures` failures in a row, the last of them with `error`, in milliseconds.

        The pause grows slowly while a group or transaction waits for its next coordinator."""
        is_away = getattr(error, "code", None) in _COORDINATOR_AWAY
        return (self._news_backoff if is_away else self.backoff).delay_ms(failures, self.rng)

    async def close(self) -> None:
        """Stops refreshing and closes every connection; calls under way raise NetworkError."""
        if self.is_closed:
            return
        self.is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections = list(self._connections.values())
        self._connections.clear()
        await until_all_ended([*(connection.close() for connection in connections), self._records.close()])

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClosedError("the client is closed")

    def _track(self, names: set[str] | None) -> None:
        if names is None:
            self._tracks_all = True
        else:
            self._tracked |= names
        if not self._ages:
            self._ages = True
            self._spawn(self._refresh_by_age(), "metadata-age")

    def _tracked_topics(self) -> set[str] | None:
        return None if self._tracks_all else self._tracked

    async def _refresh_by_age(self) -> None:
        while True:
            await asyncio.sleep(self.config.metadata_max_age_ms / 1000)
            with contextlib.suppress(KlammError):
                await self.refresh_metadata(self._tracked_topics())

    async def _run(self, refresh: _Refresh) -> None:
        async with self._refreshing:
            # The answer may miss changes from here on, so later callers get the next refresh.
            self._next_refresh = None
            request = broker_pb2.MetadataRequest(
                topics=sorted(refresh.topics),
                all_topics=refresh.all_topics,
                allow_auto_topic_creation=self._allow_auto_topic_creation,
            )
            try:
                response = await self.ask_any_broker(lambda broker: _metadata(broker, request))
            except KlammError as error:
                self._note_failure(error)
                raise
            self._refusal = None
            self._outage.end()
            self._install(self.cluster.merged(response, None if refresh.all_topics else refresh.topics))

    def _note_failure(self, error: KlammError) -> None:
        if error.retriable:
            self._outage.note(str(error).rpartition(": ")[2])
        else:
            self._refusal = error
            for listener in self._refusal_listeners:
                listener()

    def _kind_of(self, errors: Collection[KlammError]) -> type[KlammError]:
        """Returns the error of a client that no server answered.

        A wrong address cannot mend itself. But beside it, a server that has answered before, or now says that it knows
        no broker, may come back."""
        answered = [error for error in errors if _is_answer(error)]
        is_wrong = bool(answered) and all(_is_from_wrong_listener(error) for error in answered)
        return WrongListenerError if is_wrong and not self.cluster.brokers else NoBrokerError

    def _addresses(self) -> Iterator[str]:
        """Returns the known brokers in random order, then the bootstrap servers, each address once."""
        known = [node.address for node in self.cluster.brokers.values()]
        self.rng.shuffle(known)
        return iter(dict.fromkeys([*known, *self.config.bootstrap_servers]))

    async def _find_coordinator(self, key: str, key_type: broker_pb2.CoordinatorKeyType) -> Node:
        request = broker_pb2.FindCoordinatorRequest(key_type=key_type, keys=[key])
        response = await self.ask_any_broker(lambda broker: broker.find_coordinator(request))
        (found,) = response.coordinators
        raise_for(found.error_code, found.error_message)
        return node_of(found.node)

    def _install(self, view: ClusterView) -> None:
        before = self.cluster
        if view == before:
            return
        self.cluster = view
        self._close_departed()
        for listener in self._listeners:
            listener(before, view)

    def _close_departed(self) -> None:
        """Closes connections to servers that left the cluster."""
        view = self.cluster
        nodes = [*view.brokers.values(), *view.controllers, *view.coordinators.values()]
        wanted = {node.address for node in [*nodes, *self._coordinators.values()]}
        wanted.update([*self.config.bootstrap_servers, self._controller_address])
        for address in [address for address in self._connections if address not in wanted]:
            self._spawn(self._connections.pop(address).close(), f"close-{address}")
        for channel in self._records.keep({view.kafka_listener(node_id) for node_id in view.brokers}):
            self._spawn(channel.close(), "close-records")

    def _connection(self, address: str) -> Connection:
        self._require_open()
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(
                self._transport,
                address,
                client_options(self.config),
                timeout_ms=self.config.request_timeout_ms,
            )
        return connection

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = client_task(coroutine, name=f"klamm-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Reads the exception, because no caller may be awaiting the task.


async def _metadata(broker: BrokerStub, request: broker_pb2.MetadataRequest) -> broker_pb2.MetadataResponse:
    response = await broker.metadata(request)
    if not response.brokers:
        raise NoBrokerError("a server knows of no live broker")
    return response


def _is_answer(error: KlammError) -> bool:
    """Returns whether the error comes from a server that answered in some way."""
    return _is_from_wrong_listener(error) or not isinstance(error, (_NetworkError, _RequestTimedOutError))


def _is_from_wrong_listener(error: KlammError) -> bool:
    """Returns whether the server at the address does not serve clients of this kind."""
    if isinstance(error, EXCEPTIONS[ErrorCode.UNSUPPORTED_VERSION]):
        return True
    return isinstance(error.__cause__, CallFailed) and error.__cause__.details in (SPEAKS_TLS, SPEAKS_KAFKA)


class _Refresh:
    """A metadata request that has not been sent yet. Callers may still add topics."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.all_topics = False
        self.task: asyncio.Task[None] | None = None

    def add(self, names: set[str] | None) -> None:
        if names is None:
            self.all_topics = True
            self.topics = set()
        elif not self.all_topics:
            self.topics |= names

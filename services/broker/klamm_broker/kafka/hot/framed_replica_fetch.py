"""KLAMM_REPLICA_FETCH: the fetches of followers, with the messages of their gRPC call in the frames of this protocol.

The kernel sends the records from the page cache. gRPC would copy them several times. All requests of a connection are
one fetch session. The broker answers them in order. A second request that arrives ends the wait of the first one.

The bytes of an answer may change while they are sent: this broker may lose its leadership, and truncate and fill its
log as a follower. Such batches have newer epochs than the receiving follower, which does not append them.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError

from klamm.wire.framed import framed_start
from klamm.wire.v1.broker_pb2 import ReplicaFetchRequest
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_broker.kafka.net.connection import Answer
from klamm_broker.kafka.requests import Request
from klamm_broker.replication.follower_streams import FollowerStream, FollowerStreams
from klamm_server.runtime.waiting import Waiting


class FramedReplicaFetch:
    """Handles KLAMM_REPLICA_FETCH. `streams` is None at a listener that is not for followers."""

    def __init__(self, streams: FollowerStreams | None, records: RecordReader) -> None:
        self._streams = streams
        self._records = records

    @api(
        ApiKey.KLAMM_REPLICA_FETCH,
        Versions(0, 0, flexible=1),
        rights_of="Replication/ReplicaFetch",
        is_klamms=True,
    )
    def fetch(self, request: Request) -> Waiting[Answer]:
        """Returns the answer, which waits for records. Raises MalformedRequestError if the message is not valid, or if
        this listener is not for followers."""
        connection = request.connection
        assert connection is not None, "the listener sets it"
        if self._streams is None:
            raise MalformedRequestError(f"API key {request.api_key} is not supported at this listener")
        try:
            message = ReplicaFetchRequest.FromString(request.frame[request.body_start :].tobytes())
        except DecodeError as error:
            raise MalformedRequestError(f"ReplicaFetchRequest does not parse: {error}") from error
        stream = connection.stream
        if stream is None:
            stream = connection.stream = self._streams.open()
        assert isinstance(stream, FollowerStream), stream
        return Waiting(self._answer(stream, message, lambda: connection.has_more(request)))

    async def _answer(
        self, stream: FollowerStream, message: ReplicaFetchRequest, has_next: Callable[[], bool]
    ) -> Answer:
        header, size_bytes, records = await stream.answer(message, self._records.lend, has_next)
        return [framed_start(header, size_bytes), *records]

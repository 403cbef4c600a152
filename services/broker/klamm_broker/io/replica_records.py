"""Reads records of a partition from another broker's replica, as a consumer would, for the repair of damaged
segments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from klamm.cluster.metadata import server_address
from klamm.errors import BrokerError, ErrorCode, KlammError
from klamm.model import TopicPartition
from klamm.rpc.options import SERVERS
from klamm.rpc.transport import Transport
from klamm.wire.framed import decode_framed
from klamm.wire.v1.broker_pb2 import FetchHeader, FetchPartition, FetchRequest
from klamm.wire.v1.broker_rpc import BROKER
from klamm_server.rpc.channels import Channels

FETCH_BYTES = 1024 * 1024
TIMEOUT_MS = 10_000
_CONSUMER = -1
_ANY_RACK = "any"
"""A rack name for fetches from followers, because followers answer only consumers that name a rack (KIP-392)."""


class ReplicaUnreachable(KlammError):
    """Raised if no records were received. The text gives the reason."""


class ReplicaRecords:
    """Fetches records from other brokers' replicas. `close` ends its connections."""

    def __init__(
        self, transport: Transport, address: Callable[[int], tuple[str, int] | None], *, receive_max_bytes: int
    ) -> None:
        self._address = address
        self._channels = Channels(transport, BROKER, replace(SERVERS, receive_max_bytes=receive_max_bytes))

    async def fetch(
        self, broker_id: int, name: TopicPartition, offset: int, *, leader_epoch: int, from_follower: bool
    ) -> memoryview:
        """Returns whole committed batches, starting with the batch that contains `offset`. Empty if there are none.
        Raises ReplicaUnreachable."""
        address = self._address(broker_id)
        if address is None:
            raise ReplicaUnreachable("the broker's address is not known")
        request = FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            rack_id=_ANY_RACK if from_follower else "",
            partitions=[
                FetchPartition(
                    topic=name.topic,
                    partition=name.partition,
                    fetch_offset=offset,
                    current_leader_epoch=leader_epoch,
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    max_bytes=FETCH_BYTES,
                )
            ],
        )
        try:
            message = await self._channels.stub(server_address(*address)).fetch(request, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            raise ReplicaUnreachable(str(error)) from error
        try:
            header, records = decode_framed(message, FetchHeader)
        except BrokerError as error:
            raise ReplicaUnreachable(f"the broker's answer is malformed: {error.message}") from error
        answer = header.partitions[0]
        if answer.error_code:
            raise ReplicaUnreachable(f"{ErrorCode.of(answer.error_code).name} {answer.error_message}")
        return records

    async def close(self) -> None:
        await self._channels.close()

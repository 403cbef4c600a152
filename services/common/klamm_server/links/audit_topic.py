"""The audit's topic `__klamm_audit`, as a server writes to it: each batch of lines to another partition.

A batch whose answer is lost comes again, so a line may be there twice. Records have no key; their time is when they
were written. A broker creates the topic.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

from klamm.errors import ErrorCode
from klamm.model import AUDIT_TOPIC
from klamm.records import encode_batch
from klamm.rpc.transport import Transport
from klamm.wire.framed import encode_framed
from klamm.wire.v1.broker_pb2 import ProduceHeader, ProducePartition, WriterFence
from klamm.wire.v1.broker_rpc import BrokerStub
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener
from klamm_server.rpc.broker_channels import BrokerChannels
from klamm_server.runtime.clock import Clock
from klamm_server.security.session import for_itself

TIMEOUT_MS: Final = 5_000
CLIENT_ID: Final = "klamm-audit"
_ACKS_ALL: Final = -1
_NO_OWNER: Final = WriterFence(producer_id=-1, producer_epoch=-1)
"""The topic has none, and a client's produce has no fence at all."""


class AuditTopic:
    """An `AuditOutput`. `own` is the listener that this server uses of others; `create` has the topic created, or does
    nothing where others do."""

    def __init__(
        self,
        transport: Transport,
        image: Callable[[], MetadataImage],
        own: Listener,
        clock: Clock,
        create: Callable[[], object] = lambda: None,
    ) -> None:
        self._image = image
        self._clock = clock
        self._create = create
        self._channels = BrokerChannels(transport, image, own)
        self._turns = itertools.count()

    async def write(self, lines: Sequence[bytes]) -> None:
        """Raises BrokerError when they are not in the topic, or nobody knows."""
        with for_itself():
            partition, stub = self._next_leader()
            now_ms = self._clock.wall_ms()
            batch = encode_batch([(now_ms, None, line, ()) for line in lines])
            part = ProducePartition(topic=AUDIT_TOPIC, partition=partition, records_bytes=len(batch), writer=_NO_OWNER)
            header = ProduceHeader(acks=_ACKS_ALL, timeout_ms=TIMEOUT_MS, client_id=CLIENT_ID, partitions=[part])
            response = await stub.produce(encode_framed(header, [batch]), timeout_ms=2 * TIMEOUT_MS)
        produced = response.partitions[0]
        code = ErrorCode.of(produced.error_code)
        if code is not ErrorCode.NONE:
            raise code.exception(produced.error_message)

    async def close(self) -> None:
        """Ends the calls under way."""
        await self._channels.close()

    def _next_leader(self) -> tuple[int, BrokerStub]:
        topic = self._image().topic(AUDIT_TOPIC)
        if topic is None:
            self._create()
            raise ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.exception(f"the topic {AUDIT_TOPIC} is being created")
        count = len(topic.partitions)
        first = next(self._turns)
        for partition in (number % count for number in range(first, first + count)):
            stub = self._channels.leader_of(AUDIT_TOPIC, partition)
            if stub is not None:
                return partition, stub
        raise ErrorCode.LEADER_NOT_AVAILABLE.exception(f"no partition of {AUDIT_TOPIC} has a leader")

"""The audit's topic `__klamm_audit`, as a server writes to it: each batch of lines to another partition.

If the answer for a batch is lost, the batch is sent again, so a line may be there twice. Records have no key. Their
time is the time of the write. A broker creates the topic."""

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
"""The fence of a writer that has no fence, like a produce request of a client."""


class AuditTopic:
    """An `AuditOutput` that writes to the audit's topic. `own` is the listener of other servers that this server uses.
    `create` creates the topic, or does nothing at servers that leave that to others."""

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
        """Writes lines to the topic. Raises BrokerError if they were not written, or if that is unknown."""
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
        """Cancels the calls under way."""
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

"""Allocates producer ids in blocks. No id is allocated twice (KIP-360, Kafka's ProducerIdControlManager)."""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from klamm.wire.v1.metadata_pb2 import MetadataRecord, ProducerIdsRecord
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.registered import registered_broker, registered_coordinator
from klamm_server.metadata.image import MetadataImage

BLOCK_SIZE = 1000
"""The number of ids in a block, as Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE."""
PRODUCER_ID_MAX = (1 << 63) - 1


def handle_allocate_producer_ids(
    request: AllocateProducerIdsRequest, image: MetadataImage
) -> Decision[AllocateProducerIdsResponse]:
    """Allocates a block of ids to a registered coordinator or broker. Refuses a stale epoch."""
    try:
        if request.broker_epoch:
            registered_broker(image, request.broker_id, request.broker_epoch)
        else:
            registered_coordinator(image, request.coordinator_id, request.coordinator_epoch)
        record = reserve_producer_ids(image, BLOCK_SIZE)
    except Refusal as refusal:
        return Decision(reply=AllocateProducerIdsResponse(error_code=refusal.code, error_message=refusal.message))
    reply = AllocateProducerIdsResponse(first_producer_id=image.next_producer_id, count=BLOCK_SIZE)
    return Decision(records=(record,), reply=reply)


def reserve_producer_ids(image: MetadataImage, count: int) -> MetadataRecord:
    """Returns the record that reserves `count` ids from `image.next_producer_id` on. Raises Refusal if the ids are
    exhausted."""
    next_producer_id = image.next_producer_id + count
    if next_producer_id > PRODUCER_ID_MAX:
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the producer ids of this cluster are exhausted")
    return MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=next_producer_id))

"""InitProducerId: gives an idempotent producer its id (KIP-98). A transactional producer gets its id from its
coordinator.

Every client that may write to any topic may get a producer id (KIP-679)."""

from __future__ import annotations

import logging
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm_server.links.producer_ids import ProducerIds
from klamm_server.security.needs import IDEMPOTENT_WRITE

log = logging.getLogger(__name__)


class InitializedProducer(NamedTuple):
    """A producer's new id and epoch, or the error that refused them."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    producer_id: int = -1
    producer_epoch: int = 0


class InitProducerIdHandler:
    """Handles InitProducerId requests of both protocols."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def init_producer_id(self, client_id: str) -> InitializedProducer:
        try:
            if not IDEMPOTENT_WRITE.allows_any():
                raise IDEMPOTENT_WRITE.refusal()
            producer_id = await self._producer_ids.next()
        except BrokerError as error:
            log.warning("could not get a producer id for client=%s: %s", client_id, error)
            return InitializedProducer(error.code, error.message)
        return InitializedProducer(producer_id=producer_id)

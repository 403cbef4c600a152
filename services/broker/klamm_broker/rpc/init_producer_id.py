"""InitProducerId: an id for an idempotent producer (KIP-98). Ids of transactional producers are their coordinator's."""

from __future__ import annotations

import logging
from typing import Any

from klamm.errors import BrokerError
from klamm.wire.v1.broker_pb2 import InitProducerIdRequest, InitProducerIdResponse
from klamm_server.producer_ids import ProducerIds

log = logging.getLogger(__name__)


class InitProducerIdRpc:
    """Handles InitProducerId."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def init_producer_id(self, request: InitProducerIdRequest, context: Any) -> InitProducerIdResponse:
        try:
            producer_id = await self._producer_ids.next()
        except BrokerError as error:
            log.warning("client=%s gets no producer id: %s", request.client_id, error)
            return InitProducerIdResponse(error_code=error.code, error_message=error.message, producer_id=-1)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

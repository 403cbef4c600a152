"""The answer to a request that interrupts a login and ends it: ILLEGAL_SASL_STATE, as in Kafka.

Before a login, the broker reads only the request's header. So it can answer only those APIs whose answers have an error
for the whole request. Other APIs (Produce, ListOffsets ...) have errors only for each partition or topic, which the
broker has not read. For those it closes the connection without an answer.
"""

from __future__ import annotations

from typing import Final

from klamm.errors import ErrorCode
from klamm_broker.kafka.api import APIS, ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.net.connection import Parts
from klamm_broker.kafka.requests import Request

_NOBODY: Final = {"node_id": -1, "port": -1, "producer_epoch": -1}
"""The values with which Kafka says that there is no coordinator and no producer."""


def interrupted_answer(request: Request) -> Parts | None:
    """Returns the body of the answer, or None if the API has no error for the whole request."""
    if APIS[request.api_key].is_klamms:
        return None
    if request.api_key is ApiKey.API_VERSIONS and not request.is_spoken:
        request = request._replace(version=0)
    message = f"Unexpected Kafka request of type {request.api_key.name} during SASL authentication."
    error = {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": message, **_NOBODY}
    answer = messages.encode_error(request, error)
    return None if answer is None else [answer]

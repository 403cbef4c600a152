"""What a request is answered that comes in the middle of a login, which ends with it: ILLEGAL_SASL_STATE, as in Kafka.

Before a login nothing is read of a request but its header, so only that is answered which says all by an error of its
own. Where there are errors for what was asked for alone (Produce, ListOffsets ...) the connection just ends.
"""

from __future__ import annotations

from typing import Final

from klamm.errors import ErrorCode
from klamm_broker.kafka import messages
from klamm_broker.kafka.connection import Parts
from klamm_broker.kafka.requests import ApiKey, Request

_NOBODY: Final = {"node_id": -1, "port": -1, "producer_epoch": -1}
"""What Kafka says of a coordinator and a producer that are none."""


def interrupted_answer(request: Request) -> Parts | None:
    """The body of the answer; None: there is none."""
    if request.api_key is ApiKey.API_VERSIONS and not request.is_spoken:
        request = request._replace(version=0)
    message = f"Unexpected Kafka request of type {request.api_key.name} during SASL authentication."
    error = {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": message, **_NOBODY}
    answer = messages.encode_error(request, error)
    return None if answer is None else [answer]

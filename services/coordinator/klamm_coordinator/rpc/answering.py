"""The answer to a call that fails: its response with the error's code and text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from google.protobuf.message import Message

from klamm.errors import BrokerError
from klamm.wire.calls import CallContext

SelfT = TypeVar("SelfT")
RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT")

Handler = Callable[[SelfT, RequestT, CallContext], Coroutine[Any, Any, ResponseT]]


def answering(
    response: Callable[..., ResponseT], *echoed: str, **failed: Any
) -> Callable[[Handler[SelfT, RequestT, ResponseT]], Handler[SelfT, RequestT, ResponseT]]:
    """Returns a decorator of a handler. If the handler raises BrokerError, the decorator makes a `response` with the
    error. The response also has the fields of the request that `echoed` names, and the values in `failed`."""

    def decorate(handler: Handler[SelfT, RequestT, ResponseT]) -> Handler[SelfT, RequestT, ResponseT]:
        @functools.wraps(handler)
        async def answer(self: SelfT, request: RequestT, context: CallContext) -> ResponseT:
            try:
                return await handler(self, request, context)
            except BrokerError as error:
                same = {name: getattr(request, name) for name in echoed}
                return response(error_code=error.code, error_message=error.message, **same, **failed)

        return answer

    return decorate

"""The types that calls share, whichever transport carries them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)
StubT_contra = TypeVar("StubT_contra", contravariant=True)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Answer(Protocol):
    """An answer with an outcome as a whole."""

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str: ...


AnswerT = TypeVar("AnswerT", bound=Answer)


class Unary(Protocol[StubT_contra, RequestT_contra, ResponseT_co]):
    """One RPC of a stub class, to be called on some stub: `CoordinatorStub.join_group`."""

    @property
    def __name__(self) -> str: ...

    def __call__(
        self, stub: StubT_contra, request: RequestT_contra, /, *, timeout_ms: int = ...
    ) -> Coroutine[Any, Any, ResponseT_co]: ...


class Duplex(Protocol[RequestT_contra, ResponseT_co]):
    """A call whose requests are sent one by one, as long as it lasts.

    `write` and `read` raise the BrokerError of a call that failed (klamm/rpc/status.py)."""

    async def write(self, request: RequestT_contra) -> None:
        """Returns when the transport takes the next request."""

    async def read(self) -> ResponseT_co | None:
        """The next answer; None when the other side has ended the call in order."""

    def done(self) -> bool:
        """Whether the call is over."""

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        """Calls it with something of the transport's when the call is over."""

    def cancel(self) -> None:
        """Ends the call."""


class CallContext(Protocol):
    """The servicer's view of a call that it answers."""

    def peer(self) -> str:
        """The caller's address, as the transport spells it."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None:
        """What the caller says beside the request; bytes where the name ends in `-bin`."""

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        """Calls it with something of the transport's when the call is over."""

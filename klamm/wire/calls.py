"""The types of calls that all transports share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)
StubT_contra = TypeVar("StubT_contra", contravariant=True)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Answer(Protocol):
    """An answer with one error code for the whole call."""

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str: ...


AnswerT = TypeVar("AnswerT", bound=Answer)


class Unary(Protocol[StubT_contra, RequestT_contra, ResponseT_co]):
    """One RPC of a stub class, which is called with a stub: `CoordinatorStub.join_group`."""

    @property
    def __name__(self) -> str: ...

    def __call__(
        self, stub: StubT_contra, request: RequestT_contra, /, *, timeout_ms: int = ...
    ) -> Coroutine[Any, Any, ResponseT_co]: ...


class Duplex(Protocol[RequestT_contra, ResponseT_co]):
    """A call with a stream of requests and a stream of answers.

    `write` and `read` raise the BrokerError of a failed call (klamm/rpc/status.py)."""

    async def write(self, request: RequestT_contra) -> None:
        """Sends a request, and returns when the transport accepts the next one."""

    async def read(self) -> ResponseT_co | None:
        """Returns the next answer, or None after the other side has ended the call without an error."""

    def done(self) -> bool:
        """Returns whether the call has ended."""

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        """Calls `function` when the call has ended. The transport chooses its argument."""

    def cancel(self) -> None:
        """Cancels the call."""


class CallContext(Protocol):
    """The call that a servicer answers."""

    def peer(self) -> str:
        """Returns the caller's address, in the transport's format."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None:
        """Returns the metadata that the caller sent. A value is bytes if its name ends in `-bin`."""

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        """Calls `function` when the call has ended. The transport chooses its argument."""

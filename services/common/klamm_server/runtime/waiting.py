"""The result of a call that returns immediately if it can, such as the answer to a produce with acks=1."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Waiting(Generic[T_co]):
    """A result that must be waited for. The caller awaits it once, or closes `work`."""

    __slots__ = ("work",)

    def __init__(self, work: Coroutine[Any, Any, T_co]) -> None:
        self.work = work

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self.work.__await__()

"""Tests futures that end when others end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from klamm_broker.io.follow import follow

Future = asyncio.Future[Any]


def followed(end: Callable[[Future, Future], object], on_result: Callable[[int], object] | None = None) -> Future:
    """Returns a target after `end` was called with its source and the target."""

    async def main() -> Future:
        loop = asyncio.get_running_loop()
        source, target = loop.create_future(), loop.create_future()
        follow(source, target, on_result or (lambda result: target.set_result(result + 1)))
        end(source, target)
        await asyncio.wait([target])
        await asyncio.sleep(0)
        assert source.done()
        return target

    return asyncio.run(main())


def refuse(_: int) -> None:
    raise ValueError("no")


def test_the_result_is_handed_over() -> None:
    assert followed(lambda source, _: source.set_result(1)).result() == 2


@pytest.mark.parametrize(
    ("end", "on_result"),
    [
        (lambda source, _: source.set_exception(ValueError("no")), None),
        (lambda source, _: source.set_result(1), refuse),
    ],
)
def test_exceptions_are_handed_over(end: Callable[[Future, Future], object], on_result: Any) -> None:
    assert str(followed(end, on_result).exception()) == "no"


@pytest.mark.parametrize("of_source", [True, False])
def test_a_cancelled_future_cancels_the_other(of_source: bool) -> None:
    handed_over: list[int] = []
    assert followed(lambda source, target: (source if of_source else target).cancel(), handed_over.append).cancelled()
    assert not handed_over


def test_a_result_after_the_target_was_cancelled_is_dropped() -> None:
    def end(source: Future, target: Future) -> None:
        source.set_result(1)
        target.cancel()

    handed_over: list[int] = []
    assert followed(end, handed_over.append).cancelled()
    assert not handed_over

"""Tests the checks of the workload "secured". They must find a server that does not use a new certificate, and a
stranger that gets in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from klamm.errors import ErrorCode, KlammError, SslAuthenticationError
from tests.chaos.klammchaos import strangers
from tests.chaos.klammchaos.served_certificates import PATIENCE_S, ServedCertificates
from tests.chaos.klammchaos.short_certificates import Rotation

WRITTEN_S = 100.0


def served(*written_s: float) -> ServedCertificates:
    """Returns the record of a listener whose certificates 0, 1, ... have the serial numbers 10, 11, ... and were
    written at these times."""
    rotations = [Rotation({"broker-1": 10 + number}, at_s) for number, at_s in enumerate(written_s)]
    return ServedCertificates("the listener", "broker-1", rotations)


def test_a_listener_may_show_the_old_certificate_only_until_its_patience_ends() -> None:
    endpoint = served(0.0, WRITTEN_S)
    endpoint.shown(10, WRITTEN_S - 1)
    endpoint.shown(10, WRITTEN_S + PATIENCE_S)
    with pytest.raises(AssertionError, match=r"shows certificate 0 .* after it could read certificate 1"):
        endpoint.shown(10, WRITTEN_S + PATIENCE_S + 0.1)


def test_a_listener_that_was_down_gets_the_full_time_for_a_new_certificate_again() -> None:
    endpoint = served(0.0, WRITTEN_S)
    endpoint.shown(10, WRITTEN_S - 1)
    endpoint.silent()
    back_s = WRITTEN_S + 10 * PATIENCE_S
    endpoint.shown(10, back_s)
    endpoint.shown(11, back_s + 2)
    assert endpoint.taken_up_s[1] == 2
    with pytest.raises(AssertionError, match="shows certificate 0"):
        endpoint.shown(10, back_s + PATIENCE_S + 1)


def test_a_certificate_that_is_still_being_written_may_already_be_shown() -> None:
    endpoint = served(0.0, float("inf"))
    endpoint.shown(11, WRITTEN_S)
    assert endpoint.taken_up_s == {1: 0.0}


def test_a_foreign_certificate_is_found() -> None:
    with pytest.raises(AssertionError, match="nobody made: c"):
        served(0.0).shown(12, 1.0)


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [
        (None, None),
        (SslAuthenticationError("no"), True),
        (ErrorCode.SASL_AUTHENTICATION_FAILED.exception("no"), True),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED.exception("no"), True),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED.exception("no"), True),
        (ErrorCode.REQUEST_TIMED_OUT.exception("late"), False),
        (KlammError("nobody there"), False),
    ],
)
def test_only_authentication_and_authorization_errors_count_as_refusals_of_a_stranger(
    error: KlammError | None, is_refusal: bool | None
) -> None:
    async def answer() -> str:
        if error is not None:
            raise error
        return "orders"

    assert asyncio.run(strangers._refusal(answer())) is is_refusal


def knocking(*heard: bool) -> tuple[strangers.Strangers, list[bool]]:
    """Returns one stranger that gets these answers, the last one again and again, and the list of those it has not got
    yet."""
    left = list(heard)

    async def knock() -> bool:
        return left.pop(0) if len(left) > 1 else left[0]

    made = strangers.Strangers((strangers.Stranger("he", knock),), pause_s=0)
    return made, left


def in_time(story: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await story

    asyncio.run(bounded())


def test_a_stranger_tries_until_it_gets_an_explicit_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        written = asyncio.Event()
        written.set()
        made, left = knocking(False, False, True)
        await made.run(written)
        assert left == [True]

    in_time(story())
    assert capsys.readouterr().out == "refused: he, 1 of 3 times\n"


def test_a_stranger_that_gets_in_ends_the_run() -> None:
    async def knock() -> bool:
        raise strangers.GotInError("a stranger has read")

    async def story() -> None:
        await strangers.Strangers((strangers.Stranger("he", knock),), pause_s=0).run(asyncio.Event())

    with pytest.raises(strangers.GotInError, match="has read"):
        in_time(story())

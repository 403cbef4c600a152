from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from klamm_server.security.logins.checks import Checks, ChecksBusyError
from tests.support.waiting import until


class Blocked:
    """Checks that block until the test sets `go_on`."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.begun: list[int] = []

    def check(self, number: int) -> int:
        self.begun.append(number)
        assert self.go_on.wait(60)
        return number


def test_the_number_of_running_and_waiting_checks_is_bounded() -> None:
    async def scenario() -> None:
        checks, blocked = Checks("password", threads=2, waiting_max=1), Blocked()
        under_way = [asyncio.create_task(checks.run(partial(blocked.check, number))) for number in range(3)]
        try:
            await until(lambda: len(blocked.begun) == 2)
            with pytest.raises(ChecksBusyError, match="3 password checks are pending"):
                await checks.run(lambda: 3)
        finally:
            blocked.go_on.set()
        assert await asyncio.gather(*under_way) == [0, 1, 2]
        assert await checks.run(lambda: 4) == 4
        checks.close()

    asyncio.run(scenario())


def test_a_cancelled_check_makes_room_for_another() -> None:
    async def scenario() -> None:
        checks, blocked = Checks("password", threads=1, waiting_max=1), Blocked()
        first = asyncio.create_task(checks.run(partial(blocked.check, 1)))
        try:
            await until(lambda: len(blocked.begun) == 1)
            second = asyncio.create_task(checks.run(partial(blocked.check, 2)))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            third = asyncio.create_task(checks.run(partial(blocked.check, 3)))
            await asyncio.sleep(0)
        finally:
            blocked.go_on.set()
        assert (await first, await third) == (1, 3)
        assert blocked.begun == [1, 3]
        checks.close()

    asyncio.run(scenario())


def test_an_exception_of_a_check_is_raised_to_its_caller() -> None:
    async def scenario() -> None:
        checks = Checks("token")
        with pytest.raises(ZeroDivisionError):
            await checks.run(lambda: 1 // 0)
        checks.close()

    asyncio.run(scenario())

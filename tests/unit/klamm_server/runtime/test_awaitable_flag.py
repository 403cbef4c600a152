from __future__ import annotations

import asyncio

from klamm_server.runtime.awaitable_flag import AwaitableFlag


def test_a_waiter_is_woken_when_the_switch_turns() -> None:
    async def scenario() -> list[str]:
        switch, story = AwaitableFlag(), []

        async def follow() -> None:
            for on in (True, False, True):
                await switch.wait(on)
                story.append("on" if on else "off")

        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
        for on in (True, True, False, True):
            switch.set(on)
            await asyncio.sleep(0)
        await following
        return story

    assert asyncio.run(scenario()) == ["on", "off", "on"]


def test_a_wait_for_the_current_position_of_the_switch_returns_at_once() -> None:
    switch = AwaitableFlag()
    asyncio.run(asyncio.wait_for(switch.wait(False), 60))
    switch.set(True)
    asyncio.run(asyncio.wait_for(switch.wait(True), 60))

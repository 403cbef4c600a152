"""Tests that lines reach their outputs, even after these have failed, and that lost lines are counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from klamm.setting import definitions
from klamm_server.config.server_config import ServiceConfig, load
from klamm_server.runtime.clock import SystemClock
from klamm_server.security import auditor as audit
from klamm_server.security.audit.events import Category
from klamm_server.security.auditor import Auditor, auditor_of
from tests.support.audit_events import NODE, denied
from tests.support.callers import ALICE, HOST
from tests.support.loop_time import run_without_waiting
from tests.support.waiting import until


def config(**settings: str) -> ServiceConfig:
    given = {name.replace("_", "."): text for name, text in settings.items()}
    return load(ServiceConfig, {"node.id": "1", "audit.enable": "true", **given})


class Output:
    """An output that accepts lines, or fails."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.is_failing = False
        self.failures = 0
        self.is_closed = False

    async def write(self, lines: Sequence[bytes]) -> None:
        if self.is_failing:
            self.failures += 1
            raise OSError(28, "No space left on device")
        self.lines += lines

    async def close(self) -> None:
        self.is_closed = True


def auditor(output: Output, **settings: str) -> Auditor:
    return Auditor(config(**settings), NODE, SystemClock(), {"out": output})


def test_the_audit_is_off_by_default() -> None:
    off = load(ServiceConfig, {"node.id": "1"})
    assert auditor_of(off, "broker", SystemClock()) is None
    assert "audit.enable" in definitions(ServiceConfig)


def test_audit_lines_wait_for_a_failing_output_and_arrive_in_order() -> None:
    async def run() -> None:
        output = Output()
        output.is_failing = True
        one = auditor(output)
        running = asyncio.create_task(one.run())
        for number in range(3):
            one.trail.record(denied(f"{number}"), one.now_ms())
        await until(lambda: output.failures)
        output.is_failing = False
        await until(lambda: len(output.lines) == 3)
        assert [json.loads(line)["resources"][0]["name"] for line in output.lines] == ["0", "1", "2"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_without_waiting(run())


def test_counted_events_are_written_when_the_auditor_closes() -> None:
    async def run() -> None:
        output = Output()
        one = auditor(output)
        for _ in range(4):
            one.trail.record(denied(), one.now_ms())
        await one.close()
        assert [json.loads(line)["count"] for line in output.lines] == [1, 3]
        assert output.is_closed

    asyncio.run(run())


def test_a_failing_output_does_not_block_the_close_of_the_auditor() -> None:
    async def run() -> None:
        output = Output()
        output.is_failing = True
        one = auditor(output)
        one.trail.record(denied(), one.now_ms())
        await one.close()
        assert output.is_closed

    asyncio.run(run())


def test_dropped_audit_events_are_counted_in_a_metric() -> None:
    one = auditor(Output())
    before = audit.DROPPED.labels("out").value
    number = 0
    while not one.trail.is_overrun:
        one.trail.record(denied(f"{number}"), 0)
        number += 1
    assert audit.DROPPED.labels("out").value == before + 1


def test_logins_are_audited_only_if_their_category_is_enabled() -> None:
    async def told(events: str) -> list[object]:
        output = Output()
        one = auditor(output, audit_events=events)
        one.logged_in(ALICE, HOST, "PLAIN", "OUT")
        one.logged_in("User:bob", HOST, "PLAIN", "OUT", "wrong password")
        await one.close()
        return [(json.loads(line)["status_id"], json.loads(line)["user"]["name"]) for line in output.lines]

    assert asyncio.run(told(Category.AUTHENTICATION.value)) == [(1, "alice"), (2, "bob")]
    assert asyncio.run(told(Category.MANAGEMENT.value)) == []


def test_decisions_about_an_excluded_principal_are_not_audited() -> None:
    one = auditor(Output(), audit_excluded_principals="User:alice")
    assert one.of_session(ALICE, HOST) is None
    assert one.of_session("User:bob", HOST) is not None

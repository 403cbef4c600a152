"""Tests the fields of log lines for machines."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from klamm.model import TopicPartition
from klamm_server.runtime.logs import JsonFormatter, LineFormatter


def record(template: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("klamm_broker.server", logging.WARNING, __file__, 1, template, arguments, exc_info)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    return made


def spoken(one: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter("klamm-broker-2").format(one)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_json_log_line_has_the_contents_of_a_text_line() -> None:
    one = record("broker=%d serving host=%s", 2, "a.example")
    assert spoken(one) == {
        "ts": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "klamm_broker.server",
        "message": "broker=2 serving host=a.example",
        "node": "klamm-broker-2",
        "fields": {"broker": 2, "host": "a.example"},
    }
    assert LineFormatter().format(one) == (
        "2023-11-14T22:13:20.250Z WARNING klamm_broker.server broker=2 serving host=a.example"
    )


FORGED = "me\n2026-01-01T00:00:00.000Z INFO klamm_server.main forged\x1b[2J\x9b2J\x7f\u2028\u202e"


def test_a_client_cannot_forge_a_line_of_the_text_log_or_send_an_escape_sequence() -> None:
    line = LineFormatter().format(record("group=%s member=%r", FORGED, FORGED))
    assert line.isprintable()
    assert "group=me\\n2026-01-01T00:00:00.000Z INFO" in line


def test_the_text_of_an_exception_cannot_forge_a_line_of_the_text_log() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        first, *others = LineFormatter().format(record("rpc=%s failed", "Produce", error=error)).split("\n")
    assert first.endswith("rpc=Produce failed")
    assert others[0] == "  Traceback (most recent call last):"
    assert "  ValueError: me" in others
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_a_json_log_line_is_plain_ascii_whatever_a_client_sends() -> None:
    line = JsonFormatter("n").format(record("group=%s", FORGED))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["fields"] == {"group": FORGED}


@pytest.mark.parametrize(
    ("template", "arguments", "fields"),
    [
        ("nothing of note", (), None),
        ("%s ended with status=%d and restarts in %.0f s", ("broker 2", -9, 1.0), {"status": -9}),
        ("reason='%s' at=%r 5%%=%d", ("none", "here", 5), {"reason": "none", "at": "here"}),
        (
            "partition=%s isr=%s",
            (TopicPartition("t", 1), [1, 2]),
            {"partition": str(TopicPartition("t", 1)), "isr": "[1, 2]"},
        ),
        ("took_ms=%5.1f is_slow=%s", (7.25, True), {"took_ms": 7.25, "is_slow": True}),
        ("stars=%*d", (5, 1), None),
    ],
)
def test_only_named_arguments_become_fields_of_a_json_log_line(
    template: str, arguments: tuple[object, ...], fields: dict[str, object] | None
) -> None:
    assert spoken(record(template, *arguments)).get("fields") == fields


def test_a_traceback_is_a_field_of_the_json_log_line() -> None:
    try:
        raise ValueError("of ours")
    except ValueError as error:
        found = spoken(record("rpc=%s failed", "Produce", error=error))
    assert found["message"] == "rpc=Produce failed"
    assert found["exception"].startswith("Traceback (most recent call last):")
    assert found["exception"].endswith("ValueError: of ours")


def test_a_json_log_line_can_contain_undecodable_text() -> None:
    strange = b"\xff".decode(errors="surrogateescape")
    found = JsonFormatter("n").format(record("path=%s", strange))
    assert found.isascii()
    assert json.loads(found)["fields"] == {"path": strange}

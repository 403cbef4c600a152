"""Tests how commands print and how they end."""

from __future__ import annotations

import pathlib

import pytest
import typer

import klamm_cli
from klamm.errors import EXCEPTIONS, ConfigError, DeliveryTimeoutError, ErrorCode, KlammError, NoBrokerError
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    explain,
    one_line_errors,
    print_json,
    print_lines,
    print_message,
    print_rows,
    status_of,
)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KlammError("no"), ExitStatus.FAILED),
        (EXCEPTIONS[ErrorCode.TOPIC_ALREADY_EXISTS]("no"), ExitStatus.FAILED),
        (ConfigError("no"), ExitStatus.USAGE),
        (NoBrokerError("no"), ExitStatus.UNREACHABLE),
        (DeliveryTimeoutError("no"), ExitStatus.UNREACHABLE),
        (EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT]("no"), ExitStatus.UNREACHABLE),
        (EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION]("no"), ExitStatus.UNREACHABLE),
    ],
)
def test_the_exit_status_of_an_error_depends_on_its_kind(error, status):
    assert status_of(error) is status


def test_an_unreachable_cluster_is_reported_with_the_innermost_reason():
    error = NoBrokerError("no server answered: a: b: Connection refused")
    assert explain(error, "host:1").startswith("no server answers at host:1 (Connection refused); ")
    elsewhere = NoBrokerError(
        "no server answered: UNSUPPORTED_VERSION: a at host:1: this is a Kafka listener; dial h:2"
    )
    assert explain(elsewhere, "host:1") == "host:1 is for others: this is a Kafka listener; dial h:2"


def test_each_of_several_refusals_is_printed_on_its_own_line(capsys):
    error = KlammError("a: refused")
    error.add_note("also: b: refused")
    with pytest.raises(typer.Exit), one_line_errors():
        raise error
    assert capsys.readouterr().err == "klamm: a: refused\nklamm: also: b: refused\n"


FORGED = "g\nklamm: all is well\x1b]0;owned\x07\x9b2J\x7f\u202e"


def test_names_from_the_cluster_cannot_forge_lines_or_send_escape_sequences(capsys):
    print_message(f"group {FORGED}")
    print_lines("first", FORGED)
    print_json({"group": FORGED})
    print_rows(("group",), [(FORGED,)], as_json=True)
    print_rows(("group",), [(FORGED,)], as_json=False)
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert (printed.err + printed.out).replace("\n", "").isprintable()
    assert "first\ng\\nklamm: all is well" in printed.out


def test_commands_print_text_of_the_cluster_only_through_functions_that_escape_it():
    """The other files print the program's own texts."""
    own_texts = {"app.py", "commands/configs.py", "commands/pipeline.py", "console/completion.py", "console/output.py"}
    root = pathlib.Path(klamm_cli.__file__).parent
    printing = {str(path.relative_to(root)) for path in root.rglob("*.py") if "typer.echo(" in path.read_text()}
    assert printing == own_texts


def test_an_exception_that_is_no_klamm_error_is_not_caught():
    with pytest.raises(ZeroDivisionError), one_line_errors():
        _ = 1 / 0


def test_a_table_is_never_folded_in_a_pipe_and_json_has_every_column(capsys):
    rows = [("n" * 300, None, (1, 2))]
    print_rows(("name", "nothing", "some_list"), rows, as_json=False, json_only={"nothing"})
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "SOME", "LIST"]
    assert row.split() == ["n" * 300, "1,2"]
    print_rows(("name", "nothing", "some_list"), rows, as_json=True, json_only={"nothing"})
    assert '"nothing": null' in capsys.readouterr().out

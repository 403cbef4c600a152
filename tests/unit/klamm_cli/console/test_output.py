"""Tests how commands print and how they end."""

from __future__ import annotations

import pytest
import typer

from klamm.errors import EXCEPTIONS, ConfigError, DeliveryTimeoutError, ErrorCode, KlammError, NoBrokerError
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import explain, one_line_errors, print_rows, status_of


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

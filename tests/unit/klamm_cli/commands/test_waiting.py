"""Tests what a command says while it waits for servers."""

from __future__ import annotations

from klamm_cli.commands.waiting import Report
from klamm_cli.status.copies import Amount


def test_without_a_terminal_each_new_text_is_a_line_and_nothing_is_counted(capsys) -> None:
    def count() -> Amount:
        raise AssertionError("only a bar needs the bytes")

    with Report() as report:
        for text in ("0 of 2 moved", "0 of 2 moved", "1 of 2 moved"):
            report.show(text, count)
    assert capsys.readouterr().err == "0 of 2 moved\n1 of 2 moved\n"

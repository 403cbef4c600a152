"""Tests that the help has one voice and form for all commands, and fits a terminal of 80 columns."""

from __future__ import annotations

import re

import pytest

from klamm_cli.app import COMMANDS as MODULES
from klamm_pipelines.catalog import PIPELINES
from tests.support.cli_commands import COMMANDS, GROUPS, LEAVES
from tests.support.cli_runner import KlammCommand

klamm = KlammCommand("127.0.0.1:1")

VERBS = {
    *("Abort", "Add", "Alter", "Cancel", "Change", "Compute", "Create", "Delete", "Describe", "Elect", "Find", "Make"),
    *("Copy", "List", "Measure", "Move", "Print", "Produce", "Remove", "Run", "Set", "Show", "Start", "Write"),
}
"""A summary says what to do, as one tells the command."""


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_commands_summary_is_one_sentence_that_begins_with_a_verb(words):
    summary, _, rest = COMMANDS[words].help.partition("\n")
    assert summary.split()[0].rstrip(",") in VERBS
    assert summary.endswith(".")
    assert len(summary) <= 78
    assert not rest or rest.startswith("\n"), "an empty line follows the sentence"


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_help_ends_with_examples_that_use_the_commands_own_options(words):
    examples = klamm.ok(*words, "--help").out.partition("Examples:\n")[2]
    shown = re.findall(rf"klamm {' '.join(words)}\b([^|\n]*)", examples)
    assert shown
    known = {name for parameter in COMMANDS[words].params for name in (*parameter.opts, *parameter.secondary_opts)}
    used = {name for line in shown for name in re.findall(r" (-{1,2}[a-z][\w-]*)", line)}
    assert used <= known


@pytest.mark.parametrize(
    "words", [*COMMANDS, ("up",), *(("pipeline", "run", name) for name in PIPELINES)], ids=" ".join
)
def test_help_fits_a_terminal_and_has_every_option_described(words):
    text = klamm.ok(*words, "--help").out
    assert text.startswith(f"Usage: klamm {' '.join(words)} ")
    assert max(map(len, text.splitlines())) <= 80
    assert words == ("pipeline", "run") or re.search(r"-h, --help +Show this message and exit\.", text)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_argument_and_option_has_a_sentence_and_a_name_for_its_value(words):
    for param in COMMANDS[words].params:
        assert param.help, param.name
        assert param.help[0].isupper(), param.help
        assert param.help.endswith("."), param.help
        assert param.metavar is None or param.metavar.isupper() or "..." in param.metavar, param.metavar
        if not getattr(param, "is_flag", False):
            assert param.metavar, f"{param.name} shows a type of Python's instead of a name"


def test_a_command_groups_summary_is_the_same_in_the_list_and_in_its_own_help():
    assert {name: group.help.partition("\n")[0] for name, group in GROUPS.items()} == {
        name: summary for name, (_, summary) in MODULES.items() if name != "up"
    }


def test_no_summary_is_cut_in_a_list_of_commands():
    for words in [(), *((name,) for name, group in GROUPS.items() if hasattr(group, "commands"))]:
        commands = klamm(*words, "--help").out.partition("Commands:")[2]
        assert "..." not in commands, (words, commands)

"""Tests that options mean the same in all commands."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.support.cli_commands import COMMANDS, LEAVES

OPTIONS = [
    (" ".join(words), [name for name in param.opts if name.startswith("--")], [n for n in param.opts if n[1:2] != "-"])
    for words, command in COMMANDS.items()
    for param in command.params
    if param.param_type_name == "option"
]
"""The command, the long names and the short names of each option."""


def test_a_letter_names_the_same_option_in_all_commands():
    named = defaultdict(set)
    for _, long_names, letters in OPTIONS:
        for letter in letters:
            named[letter].add(long_names[0])
    assert {letter: names for letter, names in named.items() if len(names) > 1} == {}


def test_an_option_with_a_letter_has_it_in_all_commands():
    lettered = {name for _, long_names, letters in OPTIONS for name in long_names if letters}
    without = [(command, name) for command, long_names, letters in OPTIONS for name in long_names if not letters]
    assert [each for each in without if each[1] in lettered] == []


WITHOUT_JSON = {
    ("reassign", "generate"): "the plan that it prints is JSON",
}
"""The commands without --json, and why. `klamm up` is a server, and each pipeline has options of its own."""
READING = {
    "why",
    *("check", "describe", "docs", "dump", "find-hanging", "generate", "list", "quorum", "show", "size", "status"),
    *("cluster", "consume", "doctor", "top"),
}
"""The last words of the commands that change nothing. `consume` changes only the offsets of its own group."""
WITHOUT_DRY_RUN = {
    ("reassign", "verify"): "--preserve-throttles lets it change nothing",
    ("perf", "produce"): "it deletes the topics that it makes",
    ("perf", "consume"): "it deletes the topics that it makes",
    ("perf", "end-to-end"): "it deletes the topics that it makes",
    ("pipeline", "zip"): "it only writes the file that it names",
}


def names(words):
    return {name for param in COMMANDS[words].params for name in param.opts}


@pytest.mark.parametrize("words", sorted(set(LEAVES) - WITHOUT_JSON.keys()), ids=" ".join)
def test_every_command_prints_json_for_scripts(words):
    assert "--json" in names(words)


@pytest.mark.parametrize("words", sorted(set(LEAVES) - WITHOUT_DRY_RUN.keys()), ids=" ".join)
def test_every_command_that_changes_something_has_a_dry_run(words):
    assert ("--dry-run" in names(words)) is (words[-1] not in READING)


@pytest.mark.parametrize("words", [words for words in LEAVES if "--dry-run" in names(words)], ids=" ".join)
def test_the_option_for_a_dry_run_has_the_same_text_in_all_commands(words):
    texts = {param.help for param in COMMANDS[words].params if "--dry-run" in param.opts}
    assert texts == {"Check the change and show it, but change nothing."}

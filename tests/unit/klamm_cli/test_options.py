"""Tests that options mean the same in all commands."""

from __future__ import annotations

from collections import defaultdict

from tests.support.cli_commands import COMMANDS

OPTIONS = [
    (" ".join(words), [name for name in each.opts if name.startswith("--")], [n for n in each.opts if n[1:2] != "-"])
    for words, command in COMMANDS.items()
    for each in command.params
    if each.param_type_name == "option"
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

"""Tests the findings of tools/plain_english.py, the texts that it accepts, and the files that it does not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.plain_english import PATTERNS, files, findings, findings_in


def found(text: str, suffix: str = ".md") -> list[tuple[int, str]]:
    return [(finding.line, finding.pattern.name) for finding in findings(text, suffix)]


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("Locks are freed by whoever took them.", "whoever"),
        ("Whomever it asks, it waits.", "whoever"),
        ("The log is written anew.", "anew"),
        ("A partition is otherwise.", "is otherwise"),
        ("It makes sure that the log dirs are its.", "is its"),
        ("A topic, if it is its, is kept", "is its"),
        ("It wakes one of so many.", "so many"),
        ("So many times it is asked again.", "so many"),
        ("Who votes alone sees it.", "Who ..."),
        ("The leader knows it. Who follows does not.", "Who ..."),
        ("Only one is asked: who leads answers.", "Who ..."),
        ("The place of who leads is known.", "of who ..."),
        ("Bytes for who reads.", "of who ..."),
        ("It waits until who leads has answered.", "of who ..."),
    ],
)
def test_a_turn_of_phrase_is_found(sentence: str, name: str) -> None:
    assert found(f"\n{sentence}\n") == [(2, name)]
    assert found(f'size = 1\n"""{sentence}"""\n', ".py") == [(2, name)], "a search before the parsing finds it too"


@pytest.mark.parametrize(
    "sentence",
    [
        "Who may write? A broker.",
        "A client who asks is told who leads.",
        "For whom it is does not matter.",
        "So many clients came that none was served.",
        "It keeps as many as so many as there are.",
        "Each log is in its directory.",
        "Otherwise it is its own leader.",
        "The others are otherwise the same.",
        "Of three replicas one leads.",
        "By then the log is whole.",
        "A setting `whoever` and a word `anew` are code.",
    ],
)
def test_sentences_without_a_turn_of_phrase_have_no_finding(sentence: str) -> None:
    assert found(sentence) == []


def test_a_phrase_is_found_across_the_end_of_a_line() -> None:
    assert found("A record goes to one of so\nmany readers.") == [(2, "so many")]


def test_a_docstring_that_begins_with_a_preposition_is_found() -> None:
    source = '"""Of a batch."""\nsize = 1\n"""By topic."""\ndef size() -> int:\n    r"""Of a batch,\n    in bytes."""\n'
    assert found(source, ".py") == [(1, "begins with Of"), (3, "begins with By"), (5, "begins with Of")]


def test_a_paragraph_is_part_of_its_docstring() -> None:
    source = '"""Rights.\n\n    Who reads\n    waits for\n    who writes."""\n'
    assert found(source, ".py") == [(3, "Who ..."), (5, "of who ...")]


def test_texts_of_errors_and_log_lines_are_read() -> None:
    source = 'log.info("shard=%d begins anew", 1)\nraise ValueError(f"{1}: seen by whoever reads")\nassert 1, "anew"\n'
    assert sorted(found(source, ".py")) == [(1, "anew"), (2, "whoever")]


def test_only_docstrings_and_comments_of_python_are_read() -> None:
    source = 'whoever = "anew"\nanew = ["whoever"]  # the words\n# of a block that begins\n# anew\n'
    assert found(source, ".py") == [(4, "anew")]


@pytest.mark.parametrize(
    ("suffix", "text", "line"),
    [
        (".proto", "message Anew {\n  // Built anew.\n  int32 anew = 1;\n}\n", 2),
        (".yml", "anew: 1\nkey: anew#\nother: 2  # anew\n", 3),
        ("Makefile", "anew:\n\n# Made anew.\n", 3),
    ],
)
def test_only_comments_of_other_files_are_read(suffix: str, text: str, line: int) -> None:
    assert found(text, suffix) == [(line, "anew")]


def test_blocks_of_code_in_a_page_are_not_read() -> None:
    assert found("Text.\n\n```sh\n# Who is there, anew\n```\n\nWritten anew.\n") == [(7, "anew")]


def test_generated_and_hidden_files_of_a_folder_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.plain_english.ROOT", tmp_path)
    for name in ("b.py", "a.md", "data.json", ".hidden/x.py", "klamm/wire/v1/made.py", "klamm/wire/stubs.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert [path.relative_to(tmp_path).as_posix() for path in files([tmp_path])] == [
        "a.md",
        "b.py",
        "klamm/wire/stubs.py",
    ]


def test_a_file_that_was_deleted_meanwhile_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "here.md").write_text("Written anew.")
    found_in = {name: [finding.words for finding in findings_in(tmp_path / name)] for name in ("here.md", "gone.md")}
    assert found_in == {"here.md": ["Written anew."], "gone.md": []}


def test_every_pattern_has_its_own_name_and_an_advice() -> None:
    assert len({pattern.name for pattern in PATTERNS}) == len(PATTERNS)
    assert all(pattern.advice for pattern in PATTERNS)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('"""From one that does not lead."""', "fragment"),
        ('"""The log of a partition. What waits gets a task."""', "what ... is"),
        ("# A member joins, and nobody waits for it.", "what ... is"),
        ('log.warning("shard %s goes on", shard)', "dialect"),
    ],
)
def test_some_patterns_apply_only_to_the_product(text: str, name: str) -> None:
    assert [finding.pattern.name for finding in findings(text, ".py", of_product=True)] == [name]
    assert list(findings(text, ".py")) == []


def test_a_question_may_begin_with_what() -> None:
    assert list(findings("# What is the log's end? Ask the leader.", ".py", of_product=True)) == []

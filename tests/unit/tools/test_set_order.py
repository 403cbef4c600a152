"""Tests which annotations the check of sets refuses."""

from __future__ import annotations

import ast

import pytest

from tools.set_order import findings


@pytest.mark.parametrize(
    "annotation", ["set[asyncio.Task[None]]", "set[Connection]", "dict[str, set[Session]]", "set[tuple[LogDir, int]]"]
)
def test_sets_of_objects_are_refused(annotation: str) -> None:
    ((line, _),) = findings(ast.parse(f"\nself.all: {annotation} = set()"))
    assert line == 2


@pytest.mark.parametrize(
    "annotation", ["set[str]", "set[tuple[str, int]]", "set[uuid.UUID]", "set[TopicPartition]", "OrderedSet[Session]"]
)
def test_sets_of_values_are_accepted(annotation: str) -> None:
    assert not list(findings(ast.parse(f"self.all: {annotation} = set()")))

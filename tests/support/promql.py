"""Finds the metrics in an expression of Prometheus. It knows enough of PromQL's words to tell metrics from everything
else."""

from __future__ import annotations

import re

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_MATCHERS = re.compile(r"\{[^}]*\}")
_RANGE = re.compile(r"\[[^\]]*\]")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_NAME = re.compile(r"(?<![\w.$:])([a-zA-Z_:][\w:]*)(\s*\()?")
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan", "by", "without", "on", "ignoring"})


def metric_names(expression: str) -> set[str]:
    """Returns the names of the metrics that the expression selects."""
    rest = expression
    for ignored in (_STRING, _MATCHERS, _RANGE, _GROUPING):
        rest = ignored.sub(" ", rest)
    return {name for name, is_call in _NAME.findall(rest) if not is_call and name.lower() not in _WORDS}

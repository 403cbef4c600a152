"""Expressions that members subscribe with: RE2's syntax (as Kafka's, KIP-848), matched against whole names.

RE2 takes time linear in the name whatever the expression, so that no member can stop the coordinator with one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import re2

from klamm.errors import ErrorCode

_CACHED_MAX = 1_000
_PATTERN_BYTES_MAX = 1 << 20
"""What a compiled expression may take; RE2 refuses larger ones."""


def matching(expression: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that match, sorted. Raises InvalidRegularExpressionError."""
    pattern = _compiled(expression)
    return tuple(sorted(name for name in names if pattern.fullmatch(name)))


def check_pattern(expression: str) -> None:
    """Raises InvalidRegularExpressionError, with what is wrong."""
    _compiled(expression)


@lru_cache(_CACHED_MAX)
def _compiled(expression: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_BYTES_MAX
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        (why,) = error.args
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise ErrorCode.INVALID_REGULAR_EXPRESSION.exception(f"{expression!r}: {text}") from None

"""Regular expressions with which members subscribe, in RE2's syntax as in Kafka (KIP-848). They must match whole names.

RE2's matching time is linear in the length of the name for every expression, so that no member can block the
coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import re2

from klamm.errors import ErrorCode

_CACHED_MAX = 1_000
_PATTERN_BYTES_MAX = 1 << 20
"""The most memory that a compiled expression may use, in bytes. RE2 refuses larger expressions."""


def matching(expression: str, names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names that match the expression, sorted. Raises InvalidRegularExpressionError."""
    pattern = _compiled(expression)
    return tuple(sorted(name for name in names if pattern.fullmatch(name)))


def check_pattern(expression: str) -> None:
    """Raises InvalidRegularExpressionError if the expression is not valid. The error's text says why."""
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

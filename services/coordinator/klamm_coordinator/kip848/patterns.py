"""Regular expressions with which members subscribe, in RE2's syntax as in Kafka (KIP-848). They must match whole names.

RE2's matching time is linear in the length of the name for every expression. So no member can block the coordinator
with a long name. But the time is also linear in the size of the program that RE2 makes of the expression, and a
repetition makes a large program of a short expression. So the program has a bound, and groups are not captured. With
captures, RE2 can take 400 ms for a name of 30 characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import re2

from klamm.errors import ErrorCode

INSTRUCTIONS_MAX: Final = 2_000
"""The largest program of an expression. RE2 takes at most 20 µs to match it with a name of 30 characters."""
_CACHED_MAX: Final = 100
_PATTERN_BYTES_MAX: Final = 1 << 18
"""The most memory that a compiled expression may use while it matches, in bytes. RE2 refuses larger expressions. All
that are cached take at most 25 MiB."""

_SHOWN_MAX: Final = 200
"""The most characters of an expression in an error."""


def matching(expression: str, names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names that match the expression, sorted. Raises InvalidRegularExpressionError."""
    pattern = _compiled(expression)
    return tuple(sorted(name for name in names if pattern.fullmatch(name)))


def check_pattern(expression: str) -> None:
    """Raises InvalidRegularExpressionError if the expression is not valid. The error's text says why."""
    _compiled(expression)


def shown(expression: str) -> str:
    """Returns the expression for an error, quoted and cut."""
    return repr(expression) if len(expression) <= _SHOWN_MAX else f"{expression[:_SHOWN_MAX]!r}..."


@lru_cache(_CACHED_MAX)
def _compiled(expression: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_BYTES_MAX
    options.never_capture = True
    try:
        pattern = re2.compile(expression, options)
    except re2.error as error:
        (why,) = error.args
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise ErrorCode.INVALID_REGULAR_EXPRESSION.exception(f"{shown(expression)}: {text}") from None
    if pattern.programsize > INSTRUCTIONS_MAX:
        raise ErrorCode.INVALID_REGULAR_EXPRESSION.exception(
            f"{shown(expression)}: the program of the expression has {pattern.programsize} instructions, expected at"
            f" most {INSTRUCTIONS_MAX}"
        )
    return pattern

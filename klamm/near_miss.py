"""The known name that a mistyped name most likely stands for.

A name is a near miss if it differs from a known one by one or two letters. A letter that is left out, added or replaced
counts once, and so do two neighbours that are swapped (the optimal string alignment distance). Dots, underscores,
hyphens and the case of letters do not count, because they are not letters that a user mistypes into another setting.
So `broker.session.timeout` is a near miss of `broker.session.timeout.ms`, and `socket.send.buffer.bytes` is none of
`socket.receive.buffer.bytes`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LETTERS_MAX: Final = 2
"""The number of letters by which a near miss may differ from a known name."""
_NO_LETTERS: Final = str.maketrans("", "", "._-")


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """Returns the nearest name among `known`, or None if none differs by at most two letters. Of names that are equally
    near, the first in the order of the alphabet is returned."""
    return next(iter(near_misses(name, known)), None)


def near_misses(name: str, known: Iterable[str]) -> list[str]:
    """Returns every name among `known` that differs from `name` by at most two letters, the nearest first."""
    letters = _letters(name)
    distances = ((distance(letters, _letters(candidate)), candidate) for candidate in set(known))
    return [candidate for found, candidate in sorted(distances) if found <= LETTERS_MAX]


def distance(first: str, second: str) -> int:
    """Returns by how many characters two texts differ, or `LETTERS_MAX` + 1 if they differ by more than that."""
    too_far = LETTERS_MAX + 1
    if abs(len(first) - len(second)) > LETTERS_MAX:
        return too_far
    before_last: list[int] = []
    last = list(range(len(second) + 1))
    for row, letter in enumerate(first, 1):
        current = [row]
        for column, other in enumerate(second, 1):
            cost = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != other))
            is_swapped = row > 1 and column > 1 and letter == second[column - 2] and first[row - 2] == other
            current.append(min(cost, before_last[column - 2] + 1) if is_swapped else cost)
        if min(current) > LETTERS_MAX:
            return too_far
        before_last, last = last, current
    return min(last[-1], too_far)


def _letters(name: str) -> str:
    return name.casefold().translate(_NO_LETTERS)

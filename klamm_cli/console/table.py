"""Formats tables as plain text for terminals, files and pipes. A table of thousands of rows takes milliseconds.

If the terminal is too narrow, the widest columns are folded. No text is cut or left out. An address is never folded, so
that it can be copied. Nor is a number, because its parts would be read as numbers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from types import NoneType
from typing import Any, Final

from klamm.printable import printable

_GAP: Final = "  "
_NARROW_GAP: Final = " "
"""The gap between columns if they do not fit otherwise."""
_NARROWEST_COLUMN: Final = 4
_ADDRESS: Final = re.compile(r"[\w.\-\[\]:]+:\d{1,5}")


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    width: int | None = None,
    json_only: Collection[str] = (),
    color_of: Callable[[str, Any], str] | None = None,
) -> list[str]:
    """Returns the header and a line for each row. A row that does not fit into `width` terminal columns is folded into
    several lines (None: never fold).

    Numbers are aligned on the right. A table does not show the `json_only` columns. `color_of` returns the escape
    sequence before a cell, by column and value, or ""."""
    shown = [index for index, column in enumerate(columns) if column not in json_only]
    headers = [columns[index].replace("_", " ").upper() for index in shown]
    numeric = [bool(rows) and all(isinstance(row[index], _NUMERIC) for row in rows) for index in shown]
    cells = [[_cell(row[index]) for row in rows] for index in shown]
    widths = [max(map(_columns_of, (header, *of_column))) for header, of_column in zip(headers, cells, strict=True)]
    least = [
        _least_width(header, of_column, is_number)
        for header, of_column, is_number in zip(headers, cells, numeric, strict=True)
    ]
    gap_count = len(widths) - 1
    gap = _GAP if width is None or sum(least) + len(_GAP) * gap_count <= width else _NARROW_GAP
    fitted = widths if width is None else _fit(widths, least, width - len(gap) * gap_count)
    table = [[header, *of_column] for header, of_column in zip(headers, cells, strict=True)]
    heights = [1] * (len(rows) + 1)
    if fitted != widths:
        table, heights = _fold(table, fitted)
    padded = [_pad(*column) for column in zip(table, fitted, numeric, strict=True)]
    if color_of is not None:
        for of_column, index in zip(padded, shown, strict=True):
            _color(of_column, [color_of(columns[index], row[index]) for row in rows], heights)
    return [gap.join(line).rstrip() for line in zip(*padded, strict=True)]


def _color(cells: list[str], colors: Sequence[str], heights: Sequence[int]) -> None:
    """Puts the colour of each row before its lines of a column."""
    line = heights[0]
    for color, height in zip(colors, heights[1:], strict=True):
        if color:
            cells[line : line + height] = [f"{color}{cell}{_PLAIN}" for cell in cells[line : line + height]]
        line += height


_PLAIN: Final = "\x1b[0m"


_NUMERIC: Final = (int, float, NoneType)


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return printable(",".join(map(str, value)))
    return printable(str(value))


def _columns_of(text: str) -> int:
    """Returns the number of terminal columns that the text takes."""
    return len(text) if text.isascii() else sum(map(_columns_of_character, text))


def _columns_of_character(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _least_width(header: str, cells: Sequence[str], is_number: bool) -> int:
    """Returns the width below which a word of the header, a number or an address would be broken."""
    whole = cells if is_number else filter(_ADDRESS.fullmatch, cells)
    return max([_NARROWEST_COLUMN, *map(len, header.split()), *map(_columns_of, whole)])


def _fit(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Returns widths that fit into `room`, by making the widest columns narrower, down to their `least` width. The
    first column, a name, shrinks only while it takes over half of `room`, or if no other column can."""
    fitted = list(widths)
    while (excess := sum(fitted) - room) > 0:
        foldable = [
            index
            for index, width in enumerate(fitted)
            if width > least[index] and (index or width > room // 2 or len(fitted) == 1)
        ]
        if not foldable and fitted and fitted[0] > least[0]:
            foldable = [0]
        if not foldable:
            break
        widest = max(foldable, key=lambda index: fitted[index])
        next_widest = max((fitted[index] for index in foldable if index != widest), default=_NARROWEST_COLUMN)
        step = max(1, fitted[widest] - max(next_widest, least[widest]))
        fitted[widest] -= min(excess, step, fitted[widest] - least[widest])
    return fitted


def _fold(table: Sequence[Sequence[str]], widths: Sequence[int]) -> tuple[list[list[str]], list[int]]:
    """Folds the cells of a table, which is a list of columns, to `widths`. Each row gets as many lines as its cells
    need. Returns the table and the number of lines of each row."""
    heights = []
    folded: list[list[str]] = [[] for _ in table]
    for row in zip(*table, strict=True):
        parts = [_fold_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
        height = max(map(len, parts))
        heights.append(height)
        for column, lines in zip(folded, parts, strict=True):
            column += lines + [""] * (height - len(lines))
    return folded, heights


def _fold_cell(text: str, width: int) -> list[str]:
    """Folds the text between words. A word longer than `width` is broken after "/" or ",", or else anywhere."""
    parts: list[str] = []
    while _columns_of(text) > width:
        end = used = 0
        for character in text:
            used += _columns_of_character(character)
            if used > width:
                break
            end += 1
        space = text.rfind(" ", 1, end + 1)
        mark = max(text.rfind(separator, 1, end) for separator in "/,")
        end = space if space > 0 else (mark + 1 or max(end, 1))
        parts.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return [*parts, text]


def _pad(column: Sequence[str], width: int, is_numeric: bool) -> list[str]:
    if all(map(str.isascii, column)):
        return [cell.rjust(width) for cell in column] if is_numeric else [cell.ljust(width) for cell in column]
    return [cell + " " * (width - _columns_of(cell)) for cell in column]

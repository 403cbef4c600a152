"""Draws Mermaid's sequence diagrams as SVG, so that the documentation site needs no script and no network.

MkDocs calls `fence` for each block of the language `mermaid` (mkdocs.yml). A forge draws the same block with Mermaid.
Known are the lines `participant ID as Name`, `A->>B: text` (an arrow), `A-->>B: text` (a dashed arrow) and
`Note over A,B: text`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

CHARACTER: Final = 7.2
"""The width of a character in pixels, a little more than that of the site's font at 13 pixels."""
ROW: Final = 34
"""The height of an arrow with its text, in pixels."""
HEAD: Final = 30
"""The height of the box with a participant's name, in pixels."""
MARGIN: Final = 10

_PARTICIPANT: Final = re.compile(r"participant (\w+)(?: as (.+))?")
_ARROW: Final = re.compile(r"(\w+)(--?>>)(\w+): *(.+)")
_NOTE: Final = re.compile(r"Note over (\w+)(?:, ?(\w+))?: *(.+)")


@dataclass(frozen=True, slots=True)
class Event:
    """An arrow from one participant to another, or a note over some participants."""

    first: int
    """The place of the participant where the arrow begins, or of the first one under the note, from 0."""
    last: int
    """The place of the participant where the arrow ends, or of the last one under the note."""
    text: str
    kind: str
    """`->>`, `-->>` or `note`."""


def parse(source: str) -> tuple[list[str], list[Event]]:
    """Returns the names of the participants and the events of a sequence diagram, in their order.

    Raises ValueError with the line if a line is not one of those that the module's docstring lists, or if it names a
    participant that no line before it declares.
    """
    first, *lines = [line.strip() for line in source.strip().splitlines() if line.strip()]
    if first != "sequenceDiagram":
        raise ValueError(f"diagram {first!r}: expected sequenceDiagram")
    places: dict[str, int] = {}
    names: list[str] = []
    events: list[Event] = []
    for line in lines:
        if found := _PARTICIPANT.fullmatch(line):
            places[found[1]] = len(names)
            names.append(found[2] or found[1])
        else:
            events.append(_parsed_event(line, places))
    return names, events


def _parsed_event(line: str, places: dict[str, int]) -> Event:
    """Returns the event of a line. `places` has the place of each participant that is declared before the line."""
    if found := _ARROW.fullmatch(line):
        first, kind, last, text = found.groups()
    elif found := _NOTE.fullmatch(line):
        first, last, text = found.groups()
        kind = "note"
    else:
        raise ValueError(f"line {line!r} of a diagram: expected a participant, an arrow or a note")
    last = last or first
    for participant in (first, last):
        if participant not in places:
            raise ValueError(f"line {line!r} of a diagram: participant {participant!r} is not declared before it")
    return Event(places[first], places[last], text, kind)


def svg(source: str) -> str:
    """Returns the diagram as an `<svg>` element in the colour of the text around it. Raises ValueError as `parse`."""
    names, events = parse(source)
    columns = _columns(names, events)
    ends = [
        columns[-1] + _half(names[-1]),
        *(sum(_note_span(event, columns)) for event in events if event.kind == "note"),
    ]
    width = max(ends) + MARGIN
    height = HEAD + ROW * (len(events) + 1) + MARGIN
    parts = [
        *_heads(names, columns, height),
        *(part for row, event in enumerate(events) for part in _event(event, columns, HEAD + ROW * (row + 1.2))),
    ]
    title = html.escape("; ".join(f"{names[event.first]}: {event.text}" for event in events))
    return (
        f'<svg class="sequence" role="img" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'font-size="13" fill="currentColor"><title>{title}</title>{"".join(parts)}</svg>'
    )


def fence(source: str, language: str, css_class: str, options: Any, md: Any, **_: Any) -> str:
    """Returns the HTML of a block, for pymdownx.superfences."""
    return f'<div class="{css_class}">{svg(source)}</div>'


def _half(text: str) -> float:
    return len(text) * CHARACTER / 2 + MARGIN


def _columns(names: list[str], events: list[Event]) -> list[float]:
    """Returns the x of each participant, so far apart that names and texts fit."""
    columns = [_half(names[0]) + MARGIN]
    for event in events:
        if event.first == event.last == 0:
            columns[0] = max(columns[0], _half(event.text) + MARGIN)
    for place in range(1, len(names)):
        x = columns[-1] + _half(names[place - 1]) + _half(names[place]) + MARGIN
        for event in events:
            begin, end = sorted((event.first, event.last))
            if end == place and begin < place:
                x = max(x, columns[begin] + 2 * _half(event.text))
            elif begin == end == place:
                x = max(x, columns[-1] + _half(event.text) + MARGIN)
        columns.append(x)
    return columns


def _heads(names: list[str], columns: list[float], height: float) -> Iterator[str]:
    for name, x in zip(names, columns, strict=True):
        half = _half(name)
        yield f'<line x1="{x:.0f}" y1="{HEAD}" x2="{x:.0f}" y2="{height:.0f}" stroke="currentColor" opacity="0.3"/>'
        yield (
            f'<rect x="{x - half:.0f}" y="1" width="{2 * half:.0f}" height="{HEAD - 2}" rx="4" '
            'fill="none" stroke="currentColor"/>'
        )
        yield f'<text x="{x:.0f}" y="20" text-anchor="middle" font-weight="bold">{html.escape(name)}</text>'


def _note_span(event: Event, columns: list[float]) -> tuple[float, float]:
    """Returns the x of a note's middle, and half of its width."""
    begin, end = columns[event.first], columns[event.last]
    return (begin + end) / 2, max(abs(end - begin) / 2 + MARGIN, _half(event.text))


def _event(event: Event, columns: list[float], y: float) -> Iterator[str]:
    begin, end = columns[event.first], columns[event.last]
    middle = (begin + end) / 2
    text = html.escape(event.text)
    if event.kind == "note":
        middle, half = _note_span(event, columns)
        yield (
            f'<rect x="{middle - half:.0f}" y="{y - 18:.0f}" width="{2 * half:.0f}" height="24" rx="4" '
            'class="note" stroke="currentColor" stroke-opacity="0.3"/>'
        )
        yield f'<text x="{middle:.0f}" y="{y - 1:.0f}" text-anchor="middle">{text}</text>'
        return
    step = 1 if end >= begin else -1
    dashes = ' stroke-dasharray="5 4"' if event.kind == "-->>" else ""
    yield f'<text x="{middle:.0f}" y="{y - 5:.0f}" text-anchor="middle">{text}</text>'
    yield f'<line x1="{begin:.0f}" y1="{y:.0f}" x2="{end - 2 * step:.0f}" y2="{y:.0f}" stroke="currentColor"{dashes}/>'
    yield f'<path d="M{end:.0f} {y:.0f} l{-8 * step} -4 v8 z"/>'

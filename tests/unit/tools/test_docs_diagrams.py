"""Tests that diagrams of the documentation are drawn from Mermaid's text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tools.docs_diagrams import Event, fence, parse, svg

SOURCE = """
sequenceDiagram
    participant P as Producer
    participant L as Leader
    participant F
    P->>L: Produce <acks=all>
    Note over L,F: both have the records
    L-->>P: acknowledged
"""


def test_participants_and_events_are_read_in_their_order() -> None:
    names, events = parse(SOURCE)
    assert names == ["Producer", "Leader", "F"]
    assert events == [
        Event(0, 1, "Produce <acks=all>", "->>"),
        Event(1, 2, "both have the records", "note"),
        Event(1, 0, "acknowledged", "-->>"),
    ]


def test_the_drawing_is_well_formed_and_has_every_text() -> None:
    root = ElementTree.fromstring(svg(SOURCE))
    assert [element.text for element in root.iter("text")] == [
        "Producer",
        "Leader",
        "F",
        "Produce <acks=all>",
        "both have the records",
        "acknowledged",
    ]


def test_a_text_fits_between_its_participants() -> None:
    lines = [int(x) for x in re.findall(r'<line x1="(\d+)" y1="30"', svg(SOURCE))]
    assert lines == sorted(lines)
    assert lines[1] - lines[0] > 7 * len("Produce <acks=all>")


def test_a_reply_is_dashed() -> None:
    assert svg(SOURCE).count("stroke-dasharray") == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("flowchart LR", "diagram 'flowchart LR': expected sequenceDiagram"),
        ("sequenceDiagram\nloop forever", "line 'loop forever' of a diagram: expected a participant"),
        ("sequenceDiagram\nparticipant A\nA->>B: hi", "line 'A->>B: hi' of a diagram: participant 'B' is not declared"),
        ("sequenceDiagram\nNote over A: hi", "line 'Note over A: hi' of a diagram: participant 'A' is not declared"),
    ],
)
def test_an_unknown_line_is_refused(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        svg(source)


def test_a_diagram_block_has_the_css_class_of_the_site() -> None:
    assert fence(SOURCE, "mermaid", "diagram", {}, None).startswith('<div class="diagram"><svg')


def test_the_drawing_is_wide_enough_for_a_note_at_its_end() -> None:
    source = "sequenceDiagram\nparticipant A\nparticipant B\nNote over B,B: a text that is much longer than the name"
    drawn = svg(source)
    width = int(re.search(r'viewBox="0 0 (\d+)', drawn)[1])
    (x, note) = map(int, re.findall(r'<rect x="(\d+)" y="\d+" width="(\d+)" height="24"', drawn)[0])
    assert x + note < width

"""One line of a dump, as text in the manner of Kafka's DumpLogSegments (`name: value name: value`) or as JSON. Pure."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass

from klamm.printable import printable, printable_json
from klamm_cli.log_dump.plain import plain


class LineKind(enum.Enum):
    """The subject of a line."""

    FILE = "file"
    BATCH = "batch"
    RECORD = "record"
    ENTRY = "entry"
    NOTE = "note"
    """A fact that is worth knowing, but not an error."""
    DAMAGE = "damage"
    """Bytes that no server writes, or that cannot be read."""


_PREFIX = {LineKind.RECORD: "| ", LineKind.NOTE: "note: ", LineKind.DAMAGE: "damage: "}


@dataclass(frozen=True, slots=True)
class DumpLine:
    """One line of a dump: its kind, and its fields by name."""

    kind: LineKind
    fields: Mapping[str, object]

    def to_text(self) -> str:
        if self.kind is LineKind.FILE:
            return f"Dumping {_text(self.fields['path'])}"
        if self.kind in (LineKind.NOTE, LineKind.DAMAGE):
            where = [_text(self.fields["path"])]
            where += [f"position {self.fields['position']}"] if "position" in self.fields else []
            return f"{_PREFIX[self.kind]}{', '.join(where)}: {_text(self.fields['text'])}"
        pairs = (f"{name}: {_text(value)}" for name, value in self.fields.items())
        return _PREFIX.get(self.kind, "") + " ".join(pairs)

    def to_json(self) -> str:
        fields = {name: plain(value) for name, value in self.fields.items()}
        return printable_json(json.dumps({"line": self.kind.value, **fields}, ensure_ascii=False))


def file(path: str) -> DumpLine:
    return DumpLine(LineKind.FILE, {"path": path})


def entry(**fields: object) -> DumpLine:
    return DumpLine(LineKind.ENTRY, fields)


def note(path: str, text: str, position: int | None = None) -> DumpLine:
    return DumpLine(LineKind.NOTE, _place(path, position) | {"text": text})


def damage(path: str, text: str, position: int | None = None) -> DumpLine:
    return DumpLine(LineKind.DAMAGE, _place(path, position) | {"text": text})


def _place(path: str, position: int | None) -> dict[str, object]:
    return {"path": path} if position is None else {"path": path, "position": position}


def _text(value: object) -> str:
    """Returns the value as text on one line, with unprintable characters escaped."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    simple = plain(value)
    text = simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False, separators=(",", ":"))
    return printable(text)

"""Reads and rewrites the table of APIs and versions in `docs/reference/kafka-protocol.md`.

The ranges come from this code and from the schemas in Kafka's jar. The texts about differences are kept as they are:

    .venv/bin/python tests/support/protocol_table.py
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

from klamm_broker.kafka.served_apis import SPOKEN

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "kafka-protocol.md"
BEGIN: Final = "<!-- versions: begin -->"
END: Final = "<!-- versions: end -->"
HEAD: Final = ("| API | key | Klamm | Kafka | what differs |", "| --- | ---: | --- | --- | --- |")
NOTHING: Final = "-"
_REQUEST: Final = re.compile(r"common/message/\w+Request\.json")
_COMMENT: Final = re.compile(r"//.*")

Range = tuple[int, int]
"""The lowest and the highest version."""


class Row(NamedTuple):
    """One API in the table."""

    name: str
    key: int
    klamm: Range | None
    """The range in the answer of ApiVersions. None if the API is not served."""
    kafka: Range
    """The range that a broker serves by default."""
    differs: str
    """The differences that a client could notice; empty if there are none."""


def rows() -> list[Row]:
    """Returns the rows of the page."""
    text = PAGE.read_text()
    lines = text[text.index(BEGIN) : text.index(END)].splitlines()[1:]
    assert tuple(lines[:2]) == HEAD, lines[:2]
    return [_row(line) for line in lines[2:]]


def kafka_ranges(jar: Path) -> dict[str, tuple[int, Range]]:
    """Returns the key and range of the APIs that a broker of Kafka serves, by name. Unstable versions are left out."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in filter(_REQUEST.fullmatch, archive.namelist()):
            schema = json.loads(_COMMENT.sub("", archive.read(name).decode()))
            if "broker" in schema.get("listeners", ()) and schema["validVersions"] != "none":
                low, high = _range(schema["validVersions"])
                unstable = bool(schema.get("latestVersionUnstable"))
                found[schema["name"].removesuffix("Request")] = (schema["apiKey"], (low, high - unstable))
    return found


def written(kafka: dict[str, tuple[int, Range]], differs: dict[str, str]) -> list[str]:
    """Returns the table's lines, in the order of the API keys."""
    spoken = {int(key): (versions.advertised_min, versions.max) for key, versions in SPOKEN.items()}
    made = [
        Row(name, key, spoken.get(key), versions, differs.get(name, ""))
        for name, (key, versions) in sorted(kafka.items(), key=lambda one: one[1])
    ]
    return [*HEAD, *map(_line, made)]


def write(jar: Path) -> None:
    """Writes the table into the page."""
    text = PAGE.read_text()
    differs = {row.name: row.differs for row in rows()}
    table = "\n".join(written(kafka_ranges(jar), differs))
    PAGE.write_text(text[: text.index(BEGIN)] + f"{BEGIN}\n{table}\n" + text[text.index(END) :])


def _line(row: Row) -> str:
    klamm = NOTHING if row.klamm is None else _text(row.klamm)
    return f"| {row.name} | {row.key} | {klamm} | {_text(row.kafka)} | {row.differs} |".replace("|  |", "| |")


def _row(line: str) -> Row:
    name, key, klamm, kafka, differs = (cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|"))
    return Row(name, int(key), None if klamm == NOTHING else _range(klamm), _range(kafka), differs)


def _range(text: str) -> Range:
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def _text(versions: Range) -> str:
    low, high = versions
    return str(low) if low == high else f"{low}-{high}"


if __name__ == "__main__":
    from tests.support import java_programs

    assert java_programs.classpath()
    write(next((java_programs.BUILT / "lib").glob("kafka-clients-*.jar")))

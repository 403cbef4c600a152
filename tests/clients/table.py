"""The tables of Kafka's clients, and of Spark's connector for Kafka beside Klamm's data source.

Each test of a client names a behaviour, and a behaviour holds if all its tests passed. `--table` also writes each table
into its page, between two comments such as `<!-- clients: begin -->` and `<!-- clients: end -->`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from tests.clients.spark_cases import CASES, Case
from tests.clients.spark_connectors import FAILS
from tests.support import java_programs, quix_environment
from tests.support.go_programs import SARAMA

_REFERENCE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: Final = {"clients": _REFERENCE / "kafka-clients.md", "spark": _REFERENCE / "spark-options.md"}
"""The page of each table."""
BEHAVIOURS: Final = (
    "produces and consumes with every codec",
    "produces without duplicates (idempotent)",
    "reads, processes and writes in transactions",
    "a newer producer fences the older one",
    "groups rebalance while they consume",
    "groups rebalance cooperatively",
    "groups of the new protocol (KIP-848)",
    "static members keep their partitions",
    "offsets by time, at both ends, records deleted",
    "topics, partitions, configs",
    "groups and their offsets administered",
    "replicas, leaders, log dirs",
    "transactions and producers described",
    "brokers, quorum, features, users",
    "names errors as with Kafka",
    "goes on when a leader is killed",
    "TLS, by the server's certificate and by both",
    "logs in by SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN",
    "goes on for a minute in sessions of 5 s while certificates change",
    "does what access control lists allow, and names what they refuse",
    "gets in by certificate, password and token, and names what keeps it out",
)

CLIENTS: Final[Mapping[str, Callable[[], str]]] = {
    "Java": java_programs.kafka_version,
    "confluent-kafka": lambda: version("confluent-kafka"),
    "kcat": lambda: _kcat_version(),
    "aiokafka": lambda: version("aiokafka"),
    "kafka-python": lambda: version("kafka-python"),
}
NOT_OFFERED: Final = frozenset(
    {
        ("confluent-kafka", "transactions and producers described"),
        ("kcat", "groups of the new protocol (KIP-848)"),
        ("kcat", "topics, partitions, configs"),
        ("kcat", "groups and their offsets administered"),
        ("kcat", "transactions and producers described"),
        ("kcat", "goes on for a minute in sessions of 5 s while certificates change"),
        ("aiokafka", "groups rebalance cooperatively"),
        ("aiokafka", "groups of the new protocol (KIP-848)"),
        ("aiokafka", "transactions and producers described"),
        ("kafka-python", "groups of the new protocol (KIP-848)"),
    }
)
"""The behaviours for which a client has no call or setting. Every other behaviour has a test."""
PROGRAMS: Final[Mapping[str, Callable[[], str]]] = {
    "Kafka Streams": java_programs.kafka_version,
    "Kafka Connect": java_programs.connect_version,
    "Kafka's command-line tools": java_programs.kafka_version,
    'Spark\'s format("kafka")': lambda: version("pyspark"),
    "Spark's real-time mode": lambda: version("pyspark"),
    "spring-kafka": java_programs.spring_version,
    "sarama": SARAMA.sarama_version,
    "Quix Streams": quix_environment.version,
}

_SYMBOLS: Final = {True: "yes", False: "**no**", None: "-"}


class Outcomes:
    """The outcomes of the tests of this run, by client and behaviour."""

    def __init__(self) -> None:
        self._passed: dict[tuple[str, str], bool] = {}

    def add(self, client: str, behaviour: str, passed: bool) -> None:
        key = (client, behaviour)
        assert key not in NOT_OFFERED, f"{client} has a test of {behaviour!r}, which it is said not to offer"
        self._passed[key] = self._passed.get(key, True) and passed

    def lines(self) -> list[str]:
        """Returns the table in Markdown. It is empty if no test was run. A dash stands for a test that was not run."""
        lines = []
        clients = [client for client in CLIENTS if any(one == client for one, _ in self._passed)]
        if clients:
            lines += _rows(["", *(f"{client} {CLIENTS[client]()}" for client in clients)])
            for behaviour in BEHAVIOURS:
                cells = [self._cell(client, behaviour) for client in clients]
                lines.append(_row([behaviour, *cells]))
            lines.append("")
        programs = [key for key in self._passed if key[0] in PROGRAMS]
        if programs:
            lines += _rows(["", "does", "holds"])
            for program, behaviour in programs:
                cells = [f"{program} {PROGRAMS[program]()}", behaviour, _SYMBOLS[self._passed[program, behaviour]]]
                lines.append(_row(cells))
        return lines

    def _cell(self, client: str, behaviour: str) -> str:
        return "n/a" if (client, behaviour) in NOT_OFFERED else _SYMBOLS[self._passed.get((client, behaviour))]


class Comparison:
    """The outcomes of the cases of `spark_cases.py`."""

    def __init__(self) -> None:
        self._passed: dict[str, bool] = {}

    def add(self, case: Case, passed: bool) -> None:
        self._passed[case.name] = self._passed.get(case.name, True) and passed

    def lines(self) -> list[str]:
        """Returns the table in Markdown. It is empty if no test was run."""
        cases = [case for case in CASES if case.name in self._passed]
        lines = _rows(["option", "asked", "same", "otherwise"]) if cases else []
        for case in cases:
            same = "**not as expected**" if not self._passed[case.name] else "no" if case.differs else "yes"
            differing = f"Spark's: {_shown(case.result)}; Klamm: {_shown(case.klamm)}: {case.why}"
            lines.append(_row([case.option, case.query, same, differing if case.differs else ""]))
        return lines


def _shown(result: object) -> str:
    return result if result == FAILS else f"`{result}`"


def write_between_markers(path: Path, name: str, lines: list[str]) -> None:
    """Replaces the lines between the two comments of that name. Raises UsageError unless the file has both."""
    first, last = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = path.read_text()
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise pytest.UsageError(f"{path} has no {first} ... {last}")
    path.write_text("\n".join([before + first, *lines, last + after]))


def _rows(header: list[str]) -> list[str]:
    return [_row(header), _row(["---"] * len(header))]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _kcat_version() -> str:
    shown = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    return shown.partition("Version ")[2].split(" ")[0].strip()

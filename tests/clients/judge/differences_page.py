"""`docs/reference/kafka-differences.md`: the known differences for people.

    .venv/bin/python tests/clients/judge/differences_page.py

writes it from the tables of `known_differences.py` and `known_config_differences.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klamm_broker.kafka.api import ApiKey
from tests.clients.judge import known_config_differences
from tests.clients.judge.known_differences import EVERY, KNOWN, Difference

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "kafka-differences.md"
HEAD: Final = """# Where Klamm answers other than Apache Kafka

`make clients` asks Klamm and Apache Kafka 4.4.0 the same: every API that both speak, in every version, with ordinary
and with odd arguments. The answers are compared field by field. These are all differences, and why each is there: the
tests in `tests/clients/judge` fail when one is added, and when one is there no more. Which APIs and versions there are
is in [kafka-protocol.md](kafka-protocol.md).

Not compared are the texts of error messages, and what each has of its own: ids, addresses, epochs of groups, the times
of the run. A `*` in a cell stands for any text. "What follows" are other fields of the same answer that an error leaves
empty, or has filled. "Closes the connection" and "does not answer" are answers, too.
"""


def page() -> str:
    """The whole text."""
    return "\n".join([HEAD, *_answers(), *_configs()]) + "\n"


def _answers() -> Iterator[str]:
    for api_key in dict.fromkeys(one.api_key for one in KNOWN):
        yield f"## {_title(api_key)}"
        yield ""
        yield "| Question | Field | Klamm | Kafka | Why |"
        yield "| --- | --- | --- | --- | --- |"
        yield from (_row(one) for one in KNOWN if one.api_key is api_key)
        yield ""


def _row(one: Difference) -> str:
    questions = "all" if one.cases == EVERY else ", ".join(one.cases)
    field = f"`{one.field}`" if one.field else "the answer"
    follows = " and what follows" if one.with_others else ""
    return f"| {questions} | {field}{follows} | `{one.ours}` | `{one.kafka}` | {one.why} |"


def _configs() -> Iterator[str]:
    tables = {"topics": known_config_differences.TOPIC, "brokers": known_config_differences.BROKER}
    for kind, known in tables.items():
        yield f"## Configs of {kind}"
        yield ""
        yield "Settings that both have, for which DescribeConfigs answers differently."
        yield ""
        yield "| Config | What differs | Why |"
        yield "| --- | --- | --- |"
        yield from (f"| `{name}` | {', '.join(fields)} | {why} |" for name, (fields, why) in known.items())
        yield ""


def _title(api_key: ApiKey) -> str:
    return api_key.name.replace("_", " ").title().replace(" ", "")


if __name__ == "__main__":
    PAGE.write_text(page())

"""The options of a sink, checked once and by name. Those that Spark's Kafka sink has too mean the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.errors import ConfigError
from klamm.ledger_ids import NAME_LENGTH_MAX, LedgerId, ledger_problem
from pyspark_klamm.option_values import OptionValues

DEFAULT_SINK_ID: Final = "spark"
_KNOWN: Final = ("topic", "includeHeaders", "includeTimestamp", "deliveryGuarantee", "sinkId")
_AT_LEAST_ONCE: Final = "at-least-once"
_EXACTLY_ONCE: Final = "exactly-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a writer was asked for."""

    client: Mapping[str, str]
    """Settings of the producer, by Kafka's dotted names."""
    topic: str | None
    """Overrides the column `topic`."""
    include_timestamp: bool = False
    """Records have the time of the column `timestamp`, and not that of their writing."""
    exactly_once: bool = False
    sink_id: str = DEFAULT_SINK_ID
    """Tells outputs of one query apart, such as those of a copied checkpoint: the sink of its batch ledger."""


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parses a writer's options. Raises ConfigError that names the option, its value and what was expected."""
    given = OptionValues(options, _KNOWN)
    given.boolean("includeHeaders", default=False)
    client = given.client_settings()
    if "transactional.id" in client:
        raise ConfigError(f"kafka.transactional.id cannot be set: use deliveryGuarantee={_EXACTLY_ONCE}")
    exactly_once = given.choice("deliveryGuarantee", _AT_LEAST_ONCE, _EXACTLY_ONCE) == _EXACTLY_ONCE
    return SinkOptions(
        client=client,
        topic=given.topic("topic"),
        include_timestamp=given.boolean("includeTimestamp", default=False),
        exactly_once=exactly_once,
        sink_id=_sink_id(given, exactly_once),
    )


def _sink_id(given: OptionValues, exactly_once: bool) -> str:
    sink_id = given.text("sinkId")
    if sink_id is None:
        return DEFAULT_SINK_ID
    if not exactly_once:
        raise ConfigError(f"sinkId={sink_id!r} is of no use without deliveryGuarantee={_EXACTLY_ONCE}")
    if ledger_problem(LedgerId(sink_id, "query")):
        raise ConfigError(
            f"sinkId={sink_id!r}: expected 1 to {NAME_LENGTH_MAX} ASCII letters, digits, '.', '_', ':' and '-'"
        )
    return sink_id

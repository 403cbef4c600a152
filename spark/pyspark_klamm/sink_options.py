"""The options of a sink, checked once and by name. The options that Spark's Kafka sink has too have the same
meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.errors import ConfigError
from klamm.ledger_ids import NAME_LENGTH_MAX, LedgerId, ledger_problem
from klamm.model import topic_name_problem
from klamm.setting import ConfigType, boolean, custom, text
from pyspark_klamm.client_file import CLIENT_FILE
from pyspark_klamm.client_file import DOC as CLIENT_FILE_DOC
from pyspark_klamm.option_values import OptionValues, choice

DEFAULT_SINK_ID: Final = "spark"
_AT_LEAST_ONCE: Final = "at-least-once"
_EXACTLY_ONCE: Final = "exactly-once"


def _topic(value: object) -> str:
    if problem := topic_name_problem(str(value)):
        raise ValueError(f"the name of a topic: {problem}")
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The options of a sink as they are given. `kafka.*` are the producer's."""

    client_config_file: str | None = text(None, name=CLIENT_FILE, doc=CLIENT_FILE_DOC)
    topic: str | None = custom(
        None,
        _topic,
        type=ConfigType.STRING,
        doc="The topic to which all rows go. It takes precedence over the column `topic`.",
    )
    include_headers: bool = boolean(
        False,
        name="includeHeaders",
        doc="Accepted because configurations of Spark's Kafka sink contain it. A column `headers` is"
        " always written if there is one.",
    )
    include_timestamp: bool = boolean(
        False,
        name="includeTimestamp",
        doc="Whether the timestamp of a record is the column `timestamp`, instead of the time when the row is written.",
    )
    delivery_guarantee: str = custom(
        _AT_LEAST_ONCE,
        choice(_AT_LEAST_ONCE, _EXACTLY_ONCE),
        type=ConfigType.STRING,
        name="deliveryGuarantee",
        doc="at-least-once: a batch that runs again may write its rows again. exactly-once: it does not.",
    )
    sink_id: str | None = text(
        None,
        name="sinkId",
        shown=DEFAULT_SINK_ID,
        doc="With deliveryGuarantee=exactly-once, distinguishes several outputs of one query, for"
        " example those of a copied checkpoint.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The checked options of a writer."""

    client: Mapping[str, str]
    """Settings of the producer, by Kafka's dotted names."""
    topic: str | None
    """The topic to which all rows go, or None. It takes precedence over the column `topic`."""
    include_timestamp: bool = False
    """True if records have the time of the column `timestamp`, and not the time when they are written."""
    exactly_once: bool = False
    sink_id: str = DEFAULT_SINK_ID
    """The name of the sink in the batch ledger. It distinguishes outputs of one query, such as those of a copied
    checkpoint."""


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parses a writer's options. Raises ConfigError, which names the option, its value and the allowed values."""
    given = OptionValues(options, SinkSettings)
    values = given.values
    client = given.client_settings()
    if "transactional.id" in client:
        raise ConfigError(f"kafka.transactional.id cannot be set: use deliveryGuarantee={_EXACTLY_ONCE}")
    exactly_once = values.delivery_guarantee == _EXACTLY_ONCE
    return SinkOptions(
        client=client,
        topic=values.topic,
        include_timestamp=values.include_timestamp,
        exactly_once=exactly_once,
        sink_id=_sink_id(values.sink_id, exactly_once),
    )


def _sink_id(sink_id: str | None, exactly_once: bool) -> str:
    if sink_id is None:
        return DEFAULT_SINK_ID
    if not exactly_once:
        raise ConfigError(f"sinkId={sink_id!r} has no effect without deliveryGuarantee={_EXACTLY_ONCE}")
    if ledger_problem(LedgerId(sink_id, "query")):
        raise ConfigError(
            f"sinkId={sink_id!r}: expected 1 to {NAME_LENGTH_MAX} ASCII letters, digits, '.', '_', ':' and '-'"
        )
    return sink_id

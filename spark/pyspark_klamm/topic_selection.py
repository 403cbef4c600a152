"""Selects the partitions that a query reads, by the option `assign`, `subscribe` or `subscribePattern`. Pure.

A pattern is a Python regular expression that is looked for anywhere in a topic's name, as Spark's Kafka source looks
for a Java one. Syntax that only Java has (`\\p{Lower}`, `\\Q..\\E`, `[a-z&&[^b]]`, `(?<name>)`) raises a ConfigError.
Syntax that both have means the same for topic names, which are ASCII. A pattern matches no internal topic.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from klamm.cluster.metadata import ClusterView
from klamm.errors import ConfigError
from klamm.model import TopicPartition, topic_name_problem
from pyspark_klamm.option_values import OptionValues

STRATEGIES = ("assign", "subscribe", "subscribePattern")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """The topics of a query, by name or by pattern. With `partitions`, the query reads only these partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None

    @property
    def requested_topics(self) -> tuple[str, ...] | None:
        """The topics whose metadata the query needs, or None for all topics."""
        return None if self.pattern is not None else self.topics

    def covers(self, tp: TopicPartition) -> bool:
        """Returns True if the query reads the partition, whether it exists or not."""
        if self.partitions is not None:
            return tp in self.partitions
        return self.covers_topic(tp.topic)

    def covers_topic(self, topic: str) -> bool:
        """Returns True if the query reads partitions of the topic, whether it exists or not."""
        return topic in self.topics if self.pattern is None else re.search(self.pattern, topic) is not None

    def names(self, view: ClusterView) -> list[str]:
        """Returns the topics in `view` that the query reads."""
        if self.pattern is None:
            return [name for name in self.topics if name in view.topics]
        return sorted(name for name, topic in view.topics.items() if not topic.internal and self.covers_topic(name))

    def choose(self, view: ClusterView) -> list[TopicPartition]:
        """Returns the partitions in `view` that the query reads."""
        topics = [view.topics[name] for name in self.names(view)]
        tps = [TopicPartition(topic.name, partition.partition) for topic in topics for partition in topic.partitions]
        return tps if self.partitions is None else [tp for tp in tps if tp in self.partitions]


def subscription(given: OptionValues[Any]) -> TopicSelection:
    """Returns the selection by the one of the three options that was given. Raises ConfigError if none or several were
    given, or the value is not valid."""
    named = [name for name in STRATEGIES if name in given]
    if len(named) != 1:
        said = f"{' and '.join(named)} were given" if named else "none was given"
        raise ConfigError(f"expected exactly one of the options {', '.join(STRATEGIES)}; {said}")
    text = given.text(named[0]) or ""
    if named[0] == "subscribe":
        return TopicSelection(topics=_topic_list(text))
    if named[0] == "subscribePattern":
        return TopicSelection(pattern=_pattern(text))
    partitions = partition_lists("assign", text)
    return TopicSelection(topics=_in_order(tp.topic for tp in partitions), partitions=frozenset(partitions))


def partition_lists(option: str, text: str) -> list[TopicPartition]:
    """Returns the partitions in a JSON text such as `{"topic": [0, 1]}`. Raises ConfigError."""
    try:
        tps = [
            TopicPartition(topic, _partition(number)) for topic, listed in json.loads(text).items() for number in listed
        ]
        if not tps:
            raise ValueError("no partitions")
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f'{option}={text!r}: expected JSON such as {{"topic": [0, 1]}} ({error})') from error
    _check_names(option, text, (tp.topic for tp in tps))
    return tps


def _partition(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a partition, expected 0 or more")
    return value


def _topic_list(text: str) -> tuple[str, ...]:
    topics = _in_order(name.strip() for name in text.split(",") if name.strip())
    if not topics:
        raise ConfigError(f"subscribe={text!r}: expected topics, separated by commas")
    _check_names("subscribe", text, topics)
    return topics


def _pattern(text: str) -> str:
    if not text:
        raise ConfigError("subscribePattern='': expected a regular expression")
    try:
        with warnings.catch_warnings():
            # Python warns of text that may become syntax, such as Java's [a-z&&[^b]], and reads it as plain characters.
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except (re.error, FutureWarning) as error:
        raise ConfigError(f"subscribePattern={text!r}: expected a regular expression of Python ({error})") from error
    return text


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _check_names(option: str, text: str, topics: Iterable[str]) -> None:
    for topic in topics:
        if problem := topic_name_problem(topic):
            raise ConfigError(f"{option}={text!r}: {problem}")

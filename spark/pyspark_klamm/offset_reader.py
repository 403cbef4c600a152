"""The driver's questions about offsets: where a query starts, where the partitions end, and which records still exist.

Each is asked `fetchOffset.numRetries` times before its failure ends the query, as in Spark's Kafka source.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import TypeVar

from klamm.cluster.metadata import ClusterView
from klamm.errors import ConfigError, IllegalStateError, KlammError, NoBrokerError
from klamm.model import TopicPartition
from pyspark_klamm.cluster_access import ClusterAccess, TopicGoneError, UnknownTopicOrPartitionError, accesses
from pyspark_klamm.data_loss import LossPolicy
from pyspark_klamm.offset_spec import EARLIEST, LATEST, SYMBOLIC, OffsetSpec
from pyspark_klamm.offsets import (
    Continuation,
    OffsetRange,
    Offsets,
    SourceOffset,
    continuation,
    ranges_between,
    went_back,
)
from pyspark_klamm.source_options import SourceOptions

log = logging.getLogger(__name__)
T = TypeVar("T")


class OffsetReader:
    """Finds the offsets at which one query begins and ends. Has no state of its own, so it may be pickled."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._loss = LossPolicy(options.fail_on_data_loss)

    @property
    def access(self) -> ClusterAccess:
        """This process's access to the cluster."""
        return accesses.get(self._options.client)

    def start(self) -> SourceOffset:
        """Returns the offsets at which a new query begins. Raises ConfigError or UnknownTopicOrPartitionError."""
        return self._retrying(lambda: self._resolved(self._options.start, self._subscribed()))

    def bounds(self) -> tuple[SourceOffset, SourceOffset]:
        """Returns the offsets at which a batch begins and ends. Looks them up once, so that all tasks of the batch
        agree.

        Raises ConfigError, also if the start is behind the end, or UnknownTopicOrPartitionError."""
        return self._retrying(self._bounds)

    def latest(self, known: SourceOffset) -> SourceOffset:
        """Returns the current ends of all partitions, for a query that is at `known`.

        An end before the known offset may be an outdated answer, so the ends are read again."""
        for attempt in range(self._options.fetch_offset_attempts):
            if attempt:
                self._pause()
            latest = self._retrying(lambda: self._latest(known.topic_ids))
            back = went_back(known, latest)
            if not back:
                break
            log.warning("%s had a later end before, reading the offsets again", ", ".join(map(str, back)))
        return latest

    def continued(self, begin: SourceOffset, finish: SourceOffset) -> Continuation:
        """Returns how a query at `begin` reads up to `finish`. Reports losses, which raises IllegalStateError with
        failOnDataLoss. Partitions that the options no longer select are no loss."""
        left = self._left(begin, finish)
        begin = begin.only(lambda tp: tp not in left)
        found = self._retrying(lambda: self._continuation(begin, finish))
        for problem in found.losses:
            self._loss.report(problem)
        return found

    def ranges(self, begin: SourceOffset, finish: SourceOffset) -> list[OffsetRange]:
        """Returns the ranges that a batch reads, without records that were deleted since the batch was first planned.
        Reports losses, which raises IllegalStateError with failOnDataLoss."""
        gone = self._retrying(lambda: self._gone(finish))
        for topic in sorted(gone):
            self._loss.report(f"topic {topic!r} was deleted before all its records were read")
        begin, finish = begin.without(gone), finish.without(gone)
        if left := self._left(begin, finish):
            said = ", ".join(f"{tp} (it was at offset {offset})" for tp, offset in sorted(left.items()))
            log.warning("the query no longer reads %s, because its options do not select it", said)
        found = self.continued(begin, finish)
        return ranges_between(found.offsets, found.finish.offsets)

    def _left(self, begin: SourceOffset, finish: SourceOffset) -> Offsets:
        """Returns the partitions that a query has read up to `begin`, and no longer reads because of its options."""
        covers = self._options.subscription.covers
        return {tp: offset for tp, offset in begin.offsets.items() if tp not in finish.offsets and not covers(tp)}

    def _continuation(self, begin: SourceOffset, finish: SourceOffset) -> Continuation:
        try:
            earliest = self._list(finish.offsets, EARLIEST)
        except TopicGoneError:
            # The topic was deleted after the end of the batch, or of the whole run, was chosen.
            finish = finish.without(self._gone(finish))
            earliest = self._list(finish.offsets, EARLIEST)
        return continuation(begin, finish, earliest)

    def _subscribed(self) -> ClusterView:
        subscription = self._options.subscription
        view = self.access.describe(subscription.requested_topics, subscription.topics)
        for topic in subscription.topics:
            if topic not in view.topics:
                raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
        missing = (subscription.partitions or frozenset()) - set(subscription.choose(view))
        if missing:
            raise ConfigError(f"assign names partitions that do not exist: {', '.join(map(str, sorted(missing)))}")
        return view

    def _bounds(self) -> tuple[SourceOffset, SourceOffset]:
        view = self._subscribed()
        begin, end = self._resolved(self._options.start, view), self._resolved(self._options.end, view)
        for tp in sorted(begin.offsets):
            if begin.offsets[tp] > end.offsets[tp]:
                raise ConfigError(
                    f"{self._options.start.option} is offset {begin.offsets[tp]} of {tp}, behind"
                    f" {self._options.end.option}, offset {end.offsets[tp]}"
                )
        latest = self._list(end.offsets, LATEST)
        for tp, wanted in sorted(end.offsets.items()):
            if wanted > latest[tp]:
                self._loss.report(f"{tp} ends at offset {latest[tp]}, but {self._options.end.option} is {wanted}")
        ends = {tp: min(wanted, latest[tp]) for tp, wanted in end.offsets.items()}
        return begin, SourceOffset(offsets=ends, topic_ids=end.topic_ids)

    def _latest(self, known_topics: Collection[str]) -> SourceOffset:
        subscription = self._options.subscription
        view = self.access.describe(
            subscription.requested_topics, [topic for topic in known_topics if subscription.covers_topic(topic)]
        )
        tps = subscription.choose(view)
        return self._position(view, self._list(tps, LATEST))

    def _gone(self, position: SourceOffset) -> set[str]:
        view = self.access.describe(position.topic_ids, position.topic_ids)
        ids = _topic_ids(view, position.topic_ids)
        return {topic for topic, topic_id in position.topic_ids.items() if ids.get(topic) != topic_id}

    def _resolved(self, spec: OffsetSpec, view: ClusterView) -> SourceOffset:
        wanted = spec.wanted(self._options.subscription.choose(view))
        if spec.by_time:
            return self._position(view, self._by_time(wanted, None if spec.latest_if_none else spec.option))
        found = self.access.list_offsets({tp: offset for tp, offset in wanted.items() if offset in SYMBOLIC})
        return self._position(view, {**wanted, **found})

    def _by_time(self, wanted: Offsets, must_match: str | None = None) -> Offsets:
        found = self.access.list_offsets(wanted)
        none = {tp for tp, offset in found.items() if offset < 0}
        if none and must_match:
            tp = min(none)
            raise ConfigError(
                f"{must_match}: {tp} has no record at {wanted[tp]} ms or later:"
                " set startingOffsetsByTimestampStrategy=latest to start at the end of such partitions"
            )
        return {**found, **self._list(none, LATEST)}

    def _list(self, tps: Collection[TopicPartition], at: int) -> dict[TopicPartition, int]:
        return self.access.list_offsets(dict.fromkeys(tps, at)) if tps else {}

    @staticmethod
    def _position(view: ClusterView, offsets: Offsets) -> SourceOffset:
        return SourceOffset(offsets=offsets, topic_ids=_topic_ids(view, {tp.topic for tp in offsets}))

    def _retrying(self, ask: Callable[[], T]) -> T:
        for attempt in range(1, self._options.fetch_offset_attempts):
            try:
                return ask()
            except (ConfigError, IllegalStateError, UnknownTopicOrPartitionError):
                raise
            except KlammError as error:
                if not self._may_pass(error):
                    raise
                log.warning("attempt %d to get offsets failed: %s", attempt, error)
                self._pause()
        return ask()

    def _may_pass(self, error: KlammError) -> bool:
        """Returns True if the same question may get an answer later. A cluster that never answered has probably another
        address, so a query does not wait for it several times."""
        if isinstance(error, NoBrokerError):
            return self.access.has_answered
        return error.retriable or isinstance(error, TopicGoneError)

    def _pause(self) -> None:
        # Spark's call is synchronous and this process has no other work, so it may block here.
        time.sleep(self._options.fetch_offset_interval_ms / 1000)


def _topic_ids(view: ClusterView, topics: Collection[str]) -> dict[str, str]:
    return {topic: view.topics[topic].topic_id.hex for topic in topics if topic in view.topics}

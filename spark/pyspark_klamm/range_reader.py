"""Reads the ranges of a task, on an executor. Records may be deleted during the read.

Fetches name a topic by its name. At the end, the reader checks that the topic still has the id for which the batch was
planned, because ids are never used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark_klamm.cluster_access import ClusterAccess, FetchedBatches, OffsetOutOfRangeError, TopicGoneError
from pyspark_klamm.data_loss import LossPolicy
from pyspark_klamm.offset_spec import EARLIEST, LATEST
from pyspark_klamm.offsets import OffsetRange, deleted_unread


class RangeReader:
    """Reads the ranges of one task. Raises IllegalStateError if records are gone and this must end the query."""

    def __init__(self, cluster: ClusterAccess, loss: LossPolicy, poll_timeout_ms: int) -> None:
        self._cluster = cluster
        self._loss = loss
        self._poll_timeout_ms = poll_timeout_ms
        self._rest: OffsetRange | None = None
        """The rest of the range after a gap, behind the piece that was read last; None if there is no rest."""

    def pieces(self, wanted: OffsetRange) -> Iterator[tuple[OffsetRange, Iterator[FetchedBatches]]]:
        """Yields the existing pieces of the range, one after the other. There is more than one only if records are
        deleted during the read. The caller reads a piece to its end before the next one."""
        rest: OffsetRange | None = wanted
        while rest is not None:
            self._rest = None
            yield rest, self._fetch(rest)
            rest = self._rest

    def _fetch(self, wanted: OffsetRange) -> Iterator[FetchedBatches]:
        position = wanted.start_offset
        try:
            for fetched in self._cluster.fetch(wanted, self._poll_timeout_ms):
                position = fetched.next_offset
                yield fetched
        except OffsetOutOfRangeError as error:
            self._rest = self._left(wanted, position, str(error))
        except TopicGoneError as error:
            self._loss.report(f"{wanted.tp} was deleted: {error}")

    def check_topics(self, topic_ids: Mapping[str, str]) -> None:
        """Reports a loss for each topic that was deleted and created again, which another id shows."""
        view = self._cluster.describe(topic_ids, ())
        for topic, topic_id in sorted(topic_ids.items()):
            found = view.topics.get(topic)
            if found is not None and found.topic_id.hex != topic_id:
                self._loss.report(f"topic {topic!r} was deleted and created again while it was read")

    def _left(self, wanted: OffsetRange, position: int, problem: str) -> OffsetRange | None:
        """Returns the rest of the range after `position`, where records are missing, or None if there is no rest.
        Reports the loss; `problem` is the broker's text."""
        try:
            earliest = self._cluster.list_offsets({wanted.tp: EARLIEST})[wanted.tp]
            latest = self._cluster.list_offsets({wanted.tp: LATEST})[wanted.tp]
        except TopicGoneError:
            self._loss.report(problem)
            return None
        if earliest <= position:
            self._loss.report(problem)
            return None
        self._loss.report(deleted_unread(wanted.tp, position, earliest, latest))
        return wanted.within(earliest, None)

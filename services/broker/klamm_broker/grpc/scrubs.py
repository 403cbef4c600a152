"""ScrubLogs and DescribeScrubs: starts scrubs of replicas now, and describes the damage that scrubs found."""

from __future__ import annotations

from collections import defaultdict

from klamm.wire.v1.broker_pb2 import (
    DamagedSegment,
    DescribedScrub,
    DescribeScrubsRequest,
    DescribeScrubsResponse,
    ScrubLogsRequest,
    ScrubLogsResponse,
)
from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm_broker.grpc.named_topics import named_topics
from klamm_broker.handlers.topic_filter import topic_filter
from klamm_broker.log.scrub.damage import Damage
from klamm_broker.maintenance.log_scrubber import LogScrubber, ScrubStatus


class ScrubsRpc:
    """Handles ScrubLogs and DescribeScrubs."""

    def __init__(self, scrubber: LogScrubber) -> None:
        self._scrubber = scrubber

    async def scrub_logs(self, request: ScrubLogsRequest, context: object) -> ScrubLogsResponse:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in self._scrubber.ask(topic_filter(named_topics(request.topics))):
            by_topic[topic].append(partition)
        return ScrubLogsResponse(
            topics=[TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
        )

    async def describe_scrubs(self, request: DescribeScrubsRequest, context: object) -> DescribeScrubsResponse:
        is_requested = topic_filter(named_topics(request.topics))
        found = [scrub for scrub in self._scrubber.status() if is_requested(scrub.topic_partition)]
        if request.unrepaired_only:
            found = [scrub for scrub in found if scrub.is_damaged]
        return DescribeScrubsResponse(scrubs=map(_described, found))


def _described(status: ScrubStatus) -> DescribedScrub:
    topic, partition = status.topic_partition
    return DescribedScrub(
        topic=topic,
        partition=partition,
        asked=status.is_requested,
        running=status.is_running,
        next_offset=status.mark.next_offset,
        end_offset=status.mark.end_offset,
        finished_ms=status.mark.finished_ms,
        damages=[_damaged(damage) for damage in status.damages],
    )


def _damaged(damage: Damage) -> DamagedSegment:
    return DamagedSegment(
        path=damage.path,
        found_ms=damage.found_ms,
        state=int(damage.state),  # type: ignore[arg-type]
        text=damage.text,
        lines=damage.lines,
    )

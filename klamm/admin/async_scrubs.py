"""The Admin's part about reading logs to find damage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from klamm.admin import decode
from klamm.model import TopicPartition
from klamm.several_calls import until_all_ended
from klamm.wire.v1 import broker_pb2, common_pb2
from klamm.wire.v1.broker_rpc import BrokerStub

if TYPE_CHECKING:
    from klamm.admin.calls import AdminCalls
    from klamm.admin.types import ScrubDescription
    from klamm.cluster.client import KlammClient
    from klamm.wire.calls import RequestT, ResponseT, Unary


class ScrubOperations:
    """The Admin's calls about scrubs. Brokers scrub their closed segments regularly (`log.scrub.interval.ms`). These
    calls start a scrub now and show its progress."""

    _calls: AdminCalls
    _client: KlammClient

    async def scrub_logs(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> dict[int, tuple[TopicPartition, ...]]:
        """Lets brokers read their replicas of `partitions` and `topics`, or all their replicas, to find damage. Returns
        the replicas by broker. Without `broker_ids`, all live brokers do it. `describe_scrubs` shows the progress, and
        the damage that was found and repaired."""
        request = broker_pb2.ScrubLogsRequest(topics=_named(partitions, topics))
        answers = await self._of_brokers(BrokerStub.scrub_logs, request, broker_ids, timeout_ms)
        return {
            broker_id: tuple(
                TopicPartition(topic.topic, number) for topic in answer.topics for number in topic.partitions
            )
            for broker_id, answer in answers.items()
        }

    async def describe_scrubs(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Iterable[str] = (),
        unrepaired_only: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[int, tuple[ScrubDescription, ...]]:
        """Returns how far each broker has read its replicas of `partitions` and `topics`, or all its replicas.
        `broker_ids` of None means all live brokers.

        With `unrepaired_only`, returns only replicas that still have damage."""
        request = broker_pb2.DescribeScrubsRequest(topics=_named(partitions, topics), unrepaired_only=unrepaired_only)
        answers = await self._of_brokers(BrokerStub.describe_scrubs, request, broker_ids, timeout_ms)
        return {broker_id: tuple(map(decode.scrub, answer.scrubs)) for broker_id, answer in answers.items()}

    async def _of_brokers(
        self,
        rpc: Unary[BrokerStub, RequestT, ResponseT],
        request: RequestT,
        broker_ids: Iterable[int] | None,
        timeout_ms: int | None,
    ) -> Mapping[int, ResponseT]:
        given = None if broker_ids is None else list(broker_ids)

        async def attempt() -> dict[int, ResponseT]:
            cluster = await self._client.refresh_metadata([])
            ids = sorted(cluster.brokers) if given is None else given
            calls = (rpc(self._client.broker(broker_id), request) for broker_id in ids)
            return dict(zip(ids, await until_all_ended(calls), strict=True))

        return await self._calls.retrying(attempt, timeout_ms)


def _named(partitions: Iterable[TopicPartition] | None, topics: Iterable[str]) -> list[common_pb2.TopicPartitions]:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions or ():
        by_topic[topic].append(partition)
    for topic in topics:
        by_topic[topic] = []
    return [common_pb2.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]

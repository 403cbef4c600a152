"""One round of questions about partitions: each goes to the partition's leader, all leaders at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from klamm.client import KlammClient
from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition

QuestionT = TypeVar("QuestionT")


async def ask_leaders(
    client: KlammClient,
    questions: Mapping[TopicPartition, QuestionT],
    ask: Callable[[int, dict[TopicPartition, QuestionT]], Awaitable[None]],
) -> None:
    """Calls `ask(broker id, its part of the questions)`; when all have ended, raises the first error.

    Looks for unknown leaders first. A partition without one is such an error, and keeps no other waiting."""
    await _know_leaders(client, questions)
    errors: list[BaseException] = []
    by_leader: dict[int, dict[TopicPartition, QuestionT]] = {}
    for tp, question in questions.items():
        try:
            by_leader.setdefault(_leader(client, tp), {})[tp] = question
        except BrokerError as error:
            errors.append(error)
    asked = (ask(node_id, of_node) for node_id, of_node in by_leader.items())
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    errors += [outcome for outcome in outcomes if outcome is not None]
    if errors:
        raise errors[0]


async def _know_leaders(client: KlammClient, wanted: Iterable[TopicPartition]) -> None:
    unknown = {tp.topic for tp in wanted if client.cluster.leader_of(tp) is None}
    if unknown:
        await client.refresh_metadata(unknown)


def _leader(client: KlammClient, tp: TopicPartition) -> int:
    cluster = client.cluster
    leader = cluster.leader_of(tp)
    if leader is not None:
        return leader.node_id
    raise missing_leader_error(cluster.topic_errors.get(tp.topic), cluster.partition_count(tp.topic), tp)


def missing_leader_error(topic_error: ErrorCode | None, partition_count: int | None, tp: TopicPartition) -> BrokerError:
    """Why there is nobody to ask about `tp`."""
    if topic_error is not None:
        return topic_error.exception(f"topic {tp.topic!r}")
    if partition_count is not None and tp.partition >= partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.exception(
            f"{tp}: topic {tp.topic!r} has {partition_count} partitions"
        )
    return ErrorCode.LEADER_NOT_AVAILABLE.exception(f"{tp} has no leader")

"""Sends one round of requests about partitions: each to the partition's leader, all leaders at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from klamm.cluster.client import KlammClient
from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition

QuestionT = TypeVar("QuestionT")


async def ask_leaders(
    client: KlammClient,
    questions: Mapping[TopicPartition, QuestionT],
    ask: Callable[[int, dict[TopicPartition, QuestionT]], Awaitable[None]],
) -> None:
    """Calls `ask(broker id, the questions for this broker)` for all leaders at once. Raises the first error when all
    calls have ended.

    Refreshes the metadata first if a leader is unknown. A partition without a leader is such an error, but does not
    delay the others."""
    by_leader, leaderless = _by_leader(client, questions)
    if leaderless:
        await client.refresh_metadata({tp.topic for tp in leaderless})
        by_leader, leaderless = _by_leader(client, questions)
    errors: list[BaseException] = [_missing_leader_error(client, tp) for tp in leaderless]
    asked = (ask(node_id, of_node) for node_id, of_node in by_leader.items())
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    errors += [outcome for outcome in outcomes if outcome is not None]
    if errors:
        raise errors[0]


def _by_leader(
    client: KlammClient, questions: Mapping[TopicPartition, QuestionT]
) -> tuple[dict[int, dict[TopicPartition, QuestionT]], list[TopicPartition]]:
    """Returns the questions by the broker id of the leader, and the partitions without a known leader."""
    leader_of = client.cluster.leader_of
    by_leader: dict[int, dict[TopicPartition, QuestionT]] = {}
    leaderless = []
    for tp, question in questions.items():
        leader = leader_of(tp)
        if leader is None:
            leaderless.append(tp)
        elif (of_leader := by_leader.get(leader.node_id)) is None:
            by_leader[leader.node_id] = {tp: question}
        else:
            of_leader[tp] = question
    return by_leader, leaderless


def _missing_leader_error(client: KlammClient, tp: TopicPartition) -> BrokerError:
    cluster = client.cluster
    return missing_leader_error(cluster.topic_errors.get(tp.topic), cluster.partition_count(tp.topic), tp)


def missing_leader_error(topic_error: ErrorCode | None, partition_count: int | None, tp: TopicPartition) -> BrokerError:
    """Returns the error for a partition that has no known leader."""
    if topic_error is not None:
        return topic_error.exception(f"topic {tp.topic!r}")
    if partition_count is not None and tp.partition >= partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.exception(
            f"{tp}: topic {tp.topic!r} has {partition_count} partitions"
        )
    return ErrorCode.LEADER_NOT_AVAILABLE.exception(f"{tp} has no leader")

"""Prints why a group is behind: lines for people, and one document. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from klamm_cli.status.group_lag import in_words
from klamm_cli.text.amounts import duration
from klamm_cli.why.causes import Cause
from klamm_cli.why.facts import WhyFacts

PARTITIONS_SHOWN: Final = 10
ADVICE_SHOWN: Final = 2
PARTITION_COLUMNS: Final = ("partition", "lag", "behind", "read_s", "written_s", "owner")
MEMBER_COLUMNS: Final = ("member", "host", "partitions", "lag", "read_s")


def headline(facts: WhyFacts) -> str:
    """Returns the first line: the state of the group, its lag, and where it is."""
    description = facts.description
    return (
        f"group {description.group_id}: {description.type}, {description.state}; {in_words(facts.lag)}{_where(facts)}"
    )


def _where(facts: WhyFacts) -> str:
    behind = facts.behind()
    topics = sorted({partition.tp.topic for partition in behind})
    if len(behind) == 1 < len(facts.lag.partitions):
        return f"; all in {behind[0].tp}"
    if len(topics) == 1 < len({partition.tp.topic for partition in facts.lag.partitions}):
        return f"; all in topic {topics[0]}"
    return ""


def lines(facts: WhyFacts, found: Sequence[Cause]) -> list[str]:
    """Returns the lines before the tables: the headline and the causes."""
    return [headline(facts), *(cause.text for cause in found)] if found else [headline(facts), "nothing is wrong"]


def advice(found: Sequence[Cause]) -> list[str]:
    """Returns the last lines: the one or two things to do."""
    return [f"do: {cause.do}" for cause in found[:ADVICE_SHOWN]]


def partition_rows(facts: WhyFacts) -> list[tuple[Any, ...]]:
    """Returns the partitions with the most unread records."""
    owners = {tp: member.client_id or member.member_id for member in facts.members for tp in member.assignment}
    return [
        (
            str(partition.tp),
            partition.lag,
            None if partition.behind_ms is None else duration(partition.behind_ms),
            _rounded(partition.consumed_per_s),
            _rounded(partition.produced_per_s),
            owners.get(partition.tp),
        )
        for partition in facts.behind()[:PARTITIONS_SHOWN]
    ]


def member_rows(facts: WhyFacts) -> list[tuple[Any, ...]]:
    """Returns the members with the most unread records. Members without a partition come first."""
    by_member = facts.by_member()
    rows = [
        (
            member.client_id or member.member_id,
            member.client_host,
            len(member.assignment),
            sum(partition.lag or 0 for partition in by_member[member.member_id]),
            _sum([partition.consumed_per_s for partition in by_member[member.member_id]]),
        )
        for member in facts.members
    ]
    return sorted(rows, key=lambda row: (bool(row[2]), -row[3]))[:PARTITIONS_SHOWN]


def document(facts: WhyFacts, found: Sequence[Cause]) -> dict[str, Any]:
    """Returns the document that `--json` prints."""
    sample = facts.sample
    return {
        "group": facts.description.group_id,
        "type": facts.description.type,
        "state": facts.description.state,
        "lag": facts.lag.lag,
        "behind_ms": facts.behind_ms(),
        "lost": facts.lag.lost_count,
        "rebalances_per_hour": facts.lag.rebalances_per_hour,
        "causes": [cause._asdict() for cause in found],
        "partitions": [dict(zip(PARTITION_COLUMNS, row, strict=True)) for row in partition_rows(facts)],
        "members": [dict(zip(MEMBER_COLUMNS, row, strict=True)) for row in member_rows(facts)],
        "keys": [] if sample is None else [key._asdict() for key in sample.keys],
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _sum(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return round(sum(known), 1) if known else None

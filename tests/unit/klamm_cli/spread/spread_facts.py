"""Makes facts about a spread of `orders`, which has two partitions, into `orders-4`, which has four."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from klamm_cli.spread.facts import Names, SpreadFacts, TopicFacts, make_mark, marked

SOURCE_ID, TARGET_ID = uuid.UUID(int=1), uuid.UUID(int=2)
MARK = make_mark(SOURCE_ID, TARGET_ID)
NAMES = Names("orders", "orders-4")
COPIED = {0: 1_000, 1: 2_000}
BOUNDARY = {0: 700, 1: 800, 2: 900, 3: 650}


def topic(ends: Mapping[int, int], *, topic_id: uuid.UUID, stable: Mapping[int, int] | None = None, **more: bool):
    return TopicFacts(
        topic_id=topic_id,
        starts=dict.fromkeys(ends, 0),
        ends=ends,
        stable_ends=ends if stable is None else stable,
        **more,
    )


def source(ends: Mapping[int, int] = COPIED, **more):
    return topic(ends, topic_id=SOURCE_ID, **more)


def target(ends: Mapping[int, int] = BOUNDARY):
    return topic(ends, topic_id=TARGET_ID)


def facts(*, copied=None, boundary=None, mark=MARK, partitions=4, **more) -> SpreadFacts:
    offsets = {**marked("orders", copied or {}, mark), **marked("orders-4", boundary or {}, mark)}
    return SpreadFacts(names=NAMES, partitions=partitions, offsets=offsets, **{"source": source(), **more})

"""Tests fetch sessions against a model: a client's view equals the partitions' state, and memory is bounded."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm_broker.kafka.api import WHOLE_ITEMS_MAX
from klamm_broker.kafka.hot.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    LOOK_AGAIN_MS,
    NO_SESSION,
    PARTITIONS_PER_SLOT,
    FetchContext,
    FetchSessions,
    SessionRequest,
)
from klamm_broker.replica.fetch_reader import FetchCursor, PartitionAnswer, ReaderTerms
from klamm_broker.replica.reader_watch import ReaderWatch, Topic
from klamm_server.runtime.byte_shares import ByteShares

EVICTION_MS = 100


def sessions_of(slots: int, max_bytes: int = 1 << 40) -> FetchSessions:
    shares = ByteShares(max_bytes, "fetch.session.max.bytes")
    return FetchSessions(ReaderWatch(), slots=slots, eviction_ms=EVICTION_MS, rng=random.Random(3), shares=shares)


def request(
    session_id: int,
    epoch: int,
    changed: dict[int, int],
    forgotten: list[int] | None = None,
    *,
    topic: Topic = "t",
    user: str = "",
) -> SessionRequest:
    """Returns a request. `changed` are offsets by partition."""
    return SessionRequest(
        session_id,
        epoch,
        isinstance(topic, bytes),
        [(topic, FetchCursor(TopicPartition("t", number), at, 1_000)) for number, at in changed.items()],
        [(topic, number) for number in forgotten or []],
        user=user,
    )


def begin(sessions: FetchSessions, asked: SessionRequest, now_ms: int = 0) -> FetchContext:
    context = sessions.begin(asked, lambda topic_id: topic_id.decode(), object(), now_ms)
    sessions.check_invariants()
    return context


def wanted(context: FetchContext) -> Sequence[FetchCursor]:
    """Returns the positions that the broker reads for the fetch."""
    return context.wanted if context.reads is None else context.reads.cursors(ReaderTerms(read_committed=False))


def answers(
    context: FetchContext, high_watermarks: dict[int, int], records: frozenset[int] = frozenset()
) -> dict[int, int]:
    """Returns the high watermarks in the answer to a client, if the partitions have these high watermarks."""
    found = [
        PartitionAnswer(
            one.topic_partition,
            high_watermarks[one.topic_partition.partition],
            last_stable_offset=0,
            log_start_offset=0,
            records_bytes=10 if one.topic_partition.partition in records else 0,
        )
        for one in wanted(context)
    ]
    return {one.topic_partition.partition: one.high_watermark for one in context.select(found)}


@given(
    steps=st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 5), st.integers(0, 99)),
            st.frozensets(st.integers(0, 5)),
            st.dictionaries(st.integers(0, 5), st.integers(0, 99)),
            st.frozensets(st.integers(0, 5)),
        ),
        max_size=20,
    )
)
def test_a_clients_view_of_its_fetch_session_equals_the_partitions_state(
    steps: list[tuple[dict[int, int], frozenset[int], dict[int, int], frozenset[int]]],
) -> None:
    """A step changes positions, forgets partitions, changes high watermarks, and gives records to some partitions."""
    sessions = sessions_of(1)
    high_watermarks = dict.fromkeys(range(6), 0)
    offsets = {0: 0}
    context = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, offsets))
    known = answers(context, high_watermarks)
    for epoch, (changed, gone, news, records) in enumerate(steps, 1):
        forgotten = [number for number in gone if number in offsets and number not in changed]
        offsets.update(changed)
        for number in forgotten:
            del offsets[number], known[number]
        high_watermarks.update(news)
        context = begin(sessions, request(context.session_id, epoch, changed, forgotten))
        assert {one.topic_partition.partition: one.offset for one in wanted(context)} == offsets
        told = answers(context, high_watermarks, records)
        assert records & set(offsets) <= set(told)
        known.update(told)
        assert known == {number: high_watermarks[number] for number in offsets}
        if not offsets:
            assert context.session_id == NO_SESSION
            return


def test_an_unchanged_partition_is_left_out_and_an_error_is_repeated_until_it_is_over() -> None:
    sessions = sessions_of(1)
    context = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 5, 1: 5}))
    wanted(context)
    broken = PartitionAnswer(TopicPartition("t", 0), -1, -1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    fine = PartitionAnswer(TopicPartition("t", 1), 5, 5, 0)
    mended = PartitionAnswer(TopicPartition("t", 0), 5, 5, 0)
    assert list(context.select([broken, fine])) == [broken, fine]
    wanted(context := begin(sessions, request(context.session_id, 1, {})))
    assert list(context.select([broken, fine])) == [broken]
    wanted(context := begin(sessions, request(context.session_id, 2, {})))
    assert list(context.select([mended, fine])) == [mended]
    wanted(context := begin(sessions, request(context.session_id, 3, {})))
    assert list(context.select([mended, fine])) == []


def test_partitions_that_returned_records_are_read_last_in_the_next_fetch() -> None:
    sessions = sessions_of(1)
    context = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0, 1: 0, 2: 0}))
    answers(context, {0: 1, 1: 1, 2: 1}, frozenset({0, 1}))
    context = begin(sessions, request(context.session_id, 1, {}))
    assert [one.topic_partition.partition for one in wanted(context)] == [2, 0, 1]


def test_a_fetch_with_a_wrong_session_epoch_naming_or_id_is_refused() -> None:
    sessions = sessions_of(1)
    session_id = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0})).session_id
    begin(sessions, request(session_id, 1, {}))
    for asked, code in (
        (request(session_id, 1, {}), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (request(session_id, 3, {}), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (request(session_id, 2, {}, topic=b"t"), ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        (request(session_id + 1, 2, {}), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ):
        with pytest.raises(BrokerError) as refused:
            begin(sessions, asked)
        assert refused.value.code == code
    assert begin(sessions, request(session_id, 2, {})).session_id == session_id


def test_a_fetch_session_ends_when_its_client_closes_it_or_forgets_all_partitions() -> None:
    sessions = sessions_of(5)
    ended = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0})).session_id
    assert begin(sessions, request(ended, FINAL_EPOCH, {1: 0})).session_id == NO_SESSION
    replaced = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0})).session_id
    assert begin(sessions, request(replaced, INITIAL_EPOCH, {0: 0})).session_id not in (NO_SESSION, replaced)
    emptied = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0})).session_id
    assert begin(sessions, request(emptied, 1, {}, [0])).session_id == NO_SESSION
    assert (len(sessions), sessions.partition_count) == (1, 1)


def test_a_fetch_session_by_topic_id_uses_the_topics_current_name() -> None:
    sessions = sessions_of(1)
    context = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0}, topic=b"id"))
    context = sessions.begin(request(context.session_id, 1, {}, topic=b"id"), lambda _: "flights", object(), 0)
    assert [one.topic_partition.topic for one in wanted(context)] == ["flights"]


def test_a_stale_fetch_session_is_evicted_for_a_new_one() -> None:
    sessions = sessions_of(2)
    first = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0})).session_id
    second = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {1: 0}), 1).session_id
    begin(sessions, request(first, 1, {}), 2)
    assert begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {2: 0}), EVICTION_MS + 1).session_id == NO_SESSION
    assert begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {2: 0}), EVICTION_MS + 2).session_id != NO_SESSION
    begin(sessions, request(first, 2, {}), EVICTION_MS + 2)
    with pytest.raises(BrokerError, match="unknown"):
        begin(sessions, request(second, 1, {}), EVICTION_MS + 2)


def test_an_old_fetch_session_is_evicted_for_a_larger_one() -> None:
    sessions = sessions_of(1)
    small = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0})).session_id
    begin(sessions, request(small, 1, {}), EVICTION_MS)
    assert begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {1: 0}), EVICTION_MS + 1).session_id == NO_SESSION
    large = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0, 1: 0}), EVICTION_MS + 1).session_id
    assert large != NO_SESSION


def test_after_a_failed_eviction_only_a_larger_session_retries_before_the_pause_ends() -> None:
    sessions = sessions_of(1)
    small = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0})).session_id
    two, three = {0: 0, 1: 0}, {0: 0, 1: 0, 2: 0}

    def ask(partitions: dict[int, int], now_ms: int) -> int:
        return begin(sessions, request(NO_SESSION, INITIAL_EPOCH, partitions), now_ms).session_id

    begin(sessions, request(small, 1, {}), EVICTION_MS)
    assert ask(two, EVICTION_MS) == NO_SESSION
    for epoch, now_ms in enumerate(range(EVICTION_MS + 50, EVICTION_MS + LOOK_AGAIN_MS, 50), 2):
        begin(sessions, request(small, epoch, {}), now_ms)
        assert ask(two, now_ms) == NO_SESSION
    assert (larger := ask(three, EVICTION_MS + LOOK_AGAIN_MS - 1)) != NO_SESSION
    assert larger != ask(two, EVICTION_MS + LOOK_AGAIN_MS)


def test_the_partitions_of_new_and_growing_fetch_sessions_are_bounded() -> None:
    sessions = sessions_of(1)
    many = dict.fromkeys(range(PARTITIONS_PER_SLOT), 0)
    assert begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {**many, -1: 0})).session_id == NO_SESSION
    full = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, many)).session_id
    with pytest.raises(BrokerError, match="too many partitions"):
        begin(sessions, request(full, 1, {-1: 0}))
    sessions.check_invariants()
    assert len(sessions) == 0


def test_one_fetch_session_has_a_limit_of_its_own() -> None:
    sessions = sessions_of(2 * WHOLE_ITEMS_MAX // PARTITIONS_PER_SLOT)
    many = dict.fromkeys(range(WHOLE_ITEMS_MAX), 0)
    large = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, many)).session_id
    begin(sessions, request(large, 1, {0: 5}))
    with pytest.raises(BrokerError, match="it has more than 10000 partitions"):
        begin(sessions, request(large, 2, {-1: 0}))
    sessions.check_invariants()
    assert len(sessions) == 0


def test_without_slots_no_client_gets_a_fetch_session() -> None:
    sessions = sessions_of(0)
    assert begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0})).session_id == NO_SESSION


MAX_BYTES = 1_000_000
LONG_NAME = "n" * 20_000


def test_a_user_takes_two_thirds_of_the_memory_and_another_user_still_gets_a_session() -> None:
    sessions = sessions_of(1_000, MAX_BYTES)
    asked = [request(NO_SESSION, INITIAL_EPOCH, {0: 0}, topic=LONG_NAME, user="alice") for _ in range(100)]
    ids = [begin(sessions, each).session_id for each in asked]
    assert ids.count(NO_SESSION) == sessions.shares.refused_count > 0
    assert MAX_BYTES / 2 < sessions.shares.held_bytes <= MAX_BYTES * 2 / 3
    assert begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0}, user="bob")).session_id != NO_SESSION
    # A client without a session still gets all partitions that it asks for.
    assert len(wanted(begin(sessions, asked[0]))) == 1


def test_a_session_that_grows_beyond_the_share_of_its_user_ends() -> None:
    sessions = sessions_of(1_000, MAX_BYTES)
    session_id = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0}, user="alice")).session_id

    def grow() -> None:
        for epoch in range(1, 100):
            begin(sessions, request(session_id, epoch, {0: 0}, topic=f"{epoch}-{LONG_NAME}"))

    with pytest.raises(BrokerError) as refusal:
        grow()
    assert refusal.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.shares.held_bytes == len(sessions) == 0


def test_sessions_that_nobody_uses_give_way_to_new_ones() -> None:
    sessions = sessions_of(1_000, MAX_BYTES)
    asked = request(NO_SESSION, INITIAL_EPOCH, {0: 0}, topic=LONG_NAME, user="alice")
    while begin(sessions, asked).session is not None:
        pass
    count = len(sessions)
    assert begin(sessions, asked, EVICTION_MS + 1).session_id != NO_SESSION
    assert len(sessions) == count


def test_a_forgotten_partition_gives_its_memory_back() -> None:
    sessions = sessions_of(1)
    context = begin(sessions, request(NO_SESSION, INITIAL_EPOCH, {0: 0, 1: 0, 2: 0}))
    before_bytes = sessions.shares.held_bytes
    begin(sessions, request(context.session_id, 1, {}, [1, 7]))
    assert sessions.shares.held_bytes < before_bytes

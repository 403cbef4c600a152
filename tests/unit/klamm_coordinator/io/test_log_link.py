"""Tests the log of a shard: claimed once, and appended to exactly once and in order, whatever the broker does."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

from klamm.errors import ErrorCode
from klamm.records import (
    ControlRecordType,
    decode_batch,
    decode_control_record,
    encode_batch,
    iter_headers,
    read_header,
)
from klamm.retry import Backoff
from klamm_coordinator.group_shard.shard_topic import OFFSETS
from klamm_coordinator.io import log_link
from klamm_coordinator.io.log_link import FencedError, LogLink
from klamm_coordinator.io.write_memory import WriteMemory
from klamm_coordinator.records.schemas import (
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
)
from klamm_coordinator.runtime.log_write import LogWrite, TxnMarker, TxnProducer
from klamm_server.metadata.entities import ShardImage
from klamm_server.runtime.clock import SystemClock
from tests.support.fake_offsets_log import DELAYED, LOST_ANSWER, NO_ANSWER, FakeOffsetsLog


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_link, "RETRY", Backoff(initial_ms=0, max_ms=0))


def link_to(
    log: FakeOffsetsLog,
    *,
    epoch: int = 0,
    append_max_bytes: int = 1_000_000,
    producer_id: int = 77,
    former_producer_id: int | None = None,
    load_slots: asyncio.Semaphore | None = None,
) -> LogLink:
    return LogLink(
        OFFSETS,
        0,
        ShardImage(
            coordinator_id=1, producer_id=producer_id, writer_epoch=epoch, former_producer_id=former_producer_id
        ),
        log,
        clock=SystemClock(),
        rng=random.Random(1),
        append_max_bytes=append_max_bytes,
        load_buffer_bytes=200,
        load_slots=load_slots or asyncio.Semaphore(1),
        memory=WriteMemory(1 << 30),
    )


async def read_all(link: LogLink, start_offset: int, end_offset: int) -> list[memoryview]:
    read: list[memoryview] = []

    async def replay(records: memoryview) -> None:
        read.append(records)

    await link.load(start_offset, end_offset, replay)
    return read


def write(write_id: int, *, note: str = "", producer: TxnProducer | None = None) -> LogWrite[GroupRecord]:
    record = GroupRecord(OffsetCommitKey("g", "t", write_id), OffsetCommitValue(write_id, -1, note, 0))
    return LogWrite(write_id=write_id, records=(record,), producer=producer)


def marker(write_id: int, producer: TxnProducer, *, committed: bool = True) -> LogWrite[GroupRecord]:
    end = TxnMarker(committed, coordinator_epoch=11, transaction_version=2)
    return LogWrite(write_id=write_id, records=(), producer=producer, marker=end)


async def append_all(link: LogLink, writes: list[LogWrite]) -> list[tuple[int, ErrorCode]]:
    """Appends all writes. Returns the result of each write."""
    decided: list[tuple[int, ErrorCode]] = []
    all_decided = asyncio.Event()

    def on_decided(write_id: int, code: ErrorCode) -> None:
        decided.append((write_id, code))
        if len(decided) == len(writes):
            all_decided.set()

    for write in writes:
        link.append(write)
    running = asyncio.create_task(link.run(on_decided))
    waiting = asyncio.create_task(all_decided.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        await running
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return decided


def run(scenario: Callable[[FakeOffsetsLog], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(FakeOffsetsLog())

    asyncio.run(main())


def partitions_in(log: FakeOffsetsLog) -> list[int]:
    """Returns the write ids in the log, without claims."""
    keys = [record.key for record in log.records()]
    return [int.from_bytes(key[-4:], "big") for key in keys if key[:2] == b"\x00\x01"]


def test_a_claim_is_the_tombstone_of_a_group_that_cannot_exist() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        assert await link_to(log).claim() == (0, 0)

        (record,) = log.records()
        assert (record.key, record.value) == (encode_key(GroupMetadataKey("")), None)

    run(scenario)


def test_writes_of_one_loop_iteration_are_one_batch() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        await link.claim()

        decided = await append_all(link, [write(number) for number in range(100)])

        assert decided == [(number, ErrorCode.NONE) for number in range(100)]
        assert partitions_in(log) == list(range(100))
        assert log.produce_count == 2

    run(scenario)


def test_a_batch_stays_below_append_max_bytes() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log, append_max_bytes=1_000)
        await link.claim()

        await append_all(link, [write(number) for number in range(100)])

        assert partitions_in(log) == list(range(100))
        assert log.produce_count > 5
        assert max(map(len, log.batches)) < 1_100

    run(scenario)


@pytest.mark.parametrize(
    "fate",
    [
        LOST_ANSWER,
        NO_ANSWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_batch_without_a_definite_answer_is_sent_again_and_stored_once(fate: ErrorCode | str) -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        log.script.extend([fate, fate])
        await link.claim()
        log.script.extend([fate] * 3)

        decided = await append_all(link, [write(1), write(2)])

        assert decided == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
        assert partitions_in(log) == [1, 2]

    run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE])
def test_a_refused_write_does_not_block_later_writes(code: ErrorCode) -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log, append_max_bytes=1)
        await link.claim()
        log.script.extend([code, ErrorCode.NONE])

        decided = await append_all(link, [write(1), write(2)])

        assert decided == [(1, code), (2, ErrorCode.NONE)]
        assert partitions_in(log) == [2]

    run(scenario)


def test_a_topic_with_a_lower_bound_gets_smaller_batches() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        log.batch_bytes_max = 400
        link = link_to(log)
        await link.claim()

        decided = await append_all(link, [write(number) for number in range(40)] + [write(40, note="x" * 500)])

        assert decided == [(number, ErrorCode.NONE) for number in range(40)] + [(40, ErrorCode.MESSAGE_TOO_LARGE)]
        assert partitions_in(log) == list(range(40))

    run(scenario)


def test_a_former_owner_is_fenced_by_the_claim() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        former, latter = link_to(log, epoch=4), link_to(log, epoch=5)
        await former.claim()
        await latter.claim()

        with pytest.raises(FencedError):
            await append_all(former, [write(1)])

        assert partitions_in(log) == []
        with pytest.raises(FencedError):
            await link_to(log, epoch=4).claim()

    run(scenario)


def test_a_sequence_gap_reported_by_the_log_stops_the_owner() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        await link.claim()
        log.script.append(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

        with pytest.raises(AssertionError, match="lost acknowledged writes"):
            await append_all(link, [write(1)])

    run(scenario)


def test_an_owner_with_the_former_producer_id_is_fenced_by_the_claim() -> None:
    async def scenario() -> None:
        former = link_to(log, epoch=32_766)
        await former.claim()
        await append_all(former, [write(1)])

        for epoch in (0, 1):
            latter = link_to(log, epoch=epoch, producer_id=78, former_producer_id=77)
            await latter.claim()
            await append_all(latter, [write(2 + epoch)])
            with pytest.raises(FencedError):
                await append_all(former, [write(9)])

    log = FakeOffsetsLog()
    asyncio.run(scenario())
    assert partitions_in(log) == [1, 2, 3]


def test_loading_reads_everything_before_the_claim() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        former = link_to(log, append_max_bytes=300)
        await former.claim()
        await append_all(former, [write(number) for number in range(50)])
        link = link_to(log, epoch=1)

        start_offset, end_offset = await link.claim()
        read = await read_all(link, start_offset, end_offset)

        assert (start_offset, end_offset) == (0, 51)
        assert len(read) > 5
        headers = [header for part in read for _, header in iter_headers(part)]
        assert [header.base_offset for header in headers] == sorted({h.base_offset for h in headers})
        assert headers[0].base_offset == 0
        assert headers[-1].next_offset >= 51

    run(scenario)


def test_loading_starts_at_the_log_start_offset() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        former = link_to(log, append_max_bytes=1)
        await former.claim()
        await append_all(former, [write(number) for number in range(10)])
        log.log_start_offset = 6
        log.batches = log.batches[6:]
        link = link_to(log, epoch=1)

        _, end_offset = await link.claim()
        read = await read_all(link, 0, end_offset)

        assert next(iter_headers(read[0]))[1].base_offset == 6

    run(scenario)


def test_the_number_of_loads_that_hold_records_is_bounded_by_the_slots() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        slots = asyncio.Semaphore(2)
        links = [link_to(log, epoch=epoch, load_slots=slots) for epoch in range(5)]
        for link in links:
            _, end_offset = await link.claim()
        holding = loaded = most = 0

        async def replay(records: memoryview) -> None:
            nonlocal holding, loaded, most
            holding += 1
            most = max(most, holding)
            await asyncio.sleep(0)
            holding -= 1
            loaded += 1

        log.fetch_script += [NO_ANSWER, ErrorCode.NOT_LEADER_OR_FOLLOWER] * 4
        await asyncio.gather(*(link.load(0, end_offset, replay) for link in links))

        assert loaded >= len(links)
        assert most == 2

    run(scenario)


ONE, ONE_ENDED, TWO, TWO_ENDED = (
    TxnProducer(1_000, 3),
    TxnProducer(1_000, 4),
    TxnProducer(2_000, 0),
    TxnProducer(2_000, 1),
)


def test_transactional_offsets_are_batches_of_their_producer() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        await link.claim()

        await append_all(link, [write(1, producer=ONE), write(2, producer=ONE), write(3)])

        batches = [read_header(batch) for batch in log.batches[1:]]
        assert [(batch.producer_id, batch.producer_epoch, batch.is_transactional) for batch in batches] == [
            (*ONE, True),
            (77, 0, False),
        ]
        assert [batch.base_sequence for batch in batches] == [-1, 1]
        assert partitions_in(log) == [1, 2, 3]

    run(scenario)


def test_each_transaction_and_each_marker_gets_its_own_batch_in_order() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        await link.claim()
        writes = [
            write(1, producer=ONE),
            write(2, producer=TWO),
            marker(3, ONE_ENDED),
            marker(4, TWO_ENDED, committed=False),
            write(5, producer=ONE_ENDED),
        ]

        decided = await append_all(link, writes)

        assert decided == [(number, ErrorCode.NONE) for number in range(1, 6)]
        batches = [read_header(batch) for batch in log.batches[1:]]
        assert [(batch.producer_id, batch.producer_epoch, batch.is_control) for batch in batches] == [
            (*ONE, False),
            (*TWO, False),
            (*ONE_ENDED, True),
            (*TWO_ENDED, True),
            (*ONE_ENDED, False),
        ]
        (_, _, key, value, _), *_ = decode_batch(log.batches[3])
        assert decode_control_record(key, value).type is ControlRecordType.COMMIT
        assert decode_control_record(key, value).coordinator_epoch == 11

    run(scenario)


@pytest.mark.parametrize("fate", [LOST_ANSWER, NO_ANSWER, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_a_transactional_batch_is_sent_until_it_is_answered(fate: ErrorCode | str) -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        await link.claim()
        log.script.extend([fate, ErrorCode.NONE, fate])

        decided = await append_all(link, [write(1, producer=ONE), marker(2, ONE_ENDED), write(3)])

        assert decided == [(1, ErrorCode.NONE), (2, ErrorCode.NONE), (3, ErrorCode.NONE)]
        # A write is in the log at most twice, next to each other.
        assert list(dict.fromkeys(partitions_in(log))) == [1, 3]

    run(scenario)


def test_a_fenced_transactional_producer_does_not_fence_the_shard_owner() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        await link.claim()
        log.transaction_epochs[ONE.producer_id] = ONE.epoch + 1

        decided = await append_all(link, [write(1, producer=ONE), write(2)])

        assert decided == [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.NONE)]
        assert partitions_in(log) == [2]

    run(scenario)


def test_a_fenced_owner_cannot_write_transactional_batches_or_markers() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        former, latter = link_to(log, epoch=4), link_to(log, epoch=5)
        await former.claim()
        await latter.claim()

        for late in (write(1, producer=ONE), marker(2, ONE)):
            with pytest.raises(FencedError):
                await append_all(former, [late])

        assert len(log.batches) == 2

    run(scenario)


@pytest.mark.parametrize("late", [write(1, producer=ONE), marker(1, ONE)])
def test_a_delayed_duplicate_batch_is_not_appended_after_later_batches(late) -> None:
    """A client before KIP-890 has one epoch for all its transactions, so the copy would join the next transaction."""

    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        await link.claim()
        log.script += [DELAYED]
        await append_all(link, [late])
        await append_all(link, [marker(2, ONE), write(3, producer=ONE)])
        before = list(log.batches)

        assert log.deliver_delayed() == [ErrorCode.NONE]

        assert log.batches == before

    run(scenario)


@pytest.mark.parametrize("fate", [LOST_ANSWER, DELAYED, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_a_batch_of_a_transaction_that_is_sent_again_is_in_the_log_once(fate) -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        await link.claim()
        log.script += [fate, fate]

        decided = await append_all(link, [write(1, producer=ONE), marker(2, ONE_ENDED), write(3)])

        assert decided == [(number, ErrorCode.NONE) for number in (1, 2, 3)]
        assert len(log.batches) == 4

    run(scenario)


def test_a_foreign_batch_in_the_log_does_not_block_transactional_writes() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        await link.claim()
        foreign = bytearray(encode_batch([(0, b"k", b"v", ())], producer_id=5, producer_epoch=0, base_sequence=0))
        log.store(foreign, read_header(foreign))

        decided = await append_all(link, [write(1, producer=ONE), write(2)])

        assert decided == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
        assert partitions_in(log) == [1, 2]

    run(scenario)


def test_a_log_that_lost_acknowledged_transactional_writes_stops_the_owner() -> None:
    async def scenario(log: FakeOffsetsLog) -> None:
        link = link_to(log)
        await link.claim()
        await append_all(link, [write(1, producer=ONE), write(2, producer=TWO)])
        log.batches = log.batches[:1]
        log.end_offset = 1

        with pytest.raises(AssertionError, match="lost acknowledged writes"):
            await append_all(link, [write(3, producer=ONE)])

    run(scenario)

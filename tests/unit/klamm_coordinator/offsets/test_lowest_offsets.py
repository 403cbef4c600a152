"""Tests which committed offset is the lowest of the groups that hold retention."""

from __future__ import annotations

from collections.abc import Iterator

from klamm.model import TopicPartition
from klamm_coordinator.offsets.lowest_offsets import LowestOffsets, TopicHold
from klamm_coordinator.records.schemas import NO_TIMESTAMP, OffsetCommitValue

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def committed(**offsets: int) -> dict[TopicPartition, OffsetCommitValue]:
    partitions = {"p": P, "q": Q}
    return {
        partitions[name]: OffsetCommitValue(
            offset=offset,
            leader_epoch=-1,
            metadata="",
            commit_timestamp_ms=0,
            expire_timestamp_ms=NO_TIMESTAMP,
        )
        for name, offset in offsets.items()
    }


def lowest(*groups: tuple[str, dict[TopicPartition, OffsetCommitValue]], named: tuple[str, ...], all_groups: bool):
    found = LowestOffsets([TopicHold([P, Q], named, all_groups)])
    for group_id, offsets in groups:
        found.add(group_id, offsets)
    return found.lowest


def test_the_slowest_group_counts_in_each_partition() -> None:
    a, b = ("a", committed(p=5, q=9)), ("b", committed(p=7, q=2))
    assert lowest(a, b, named=("a", "b"), all_groups=False) == {P: (5, "a"), Q: (2, "b")}
    assert lowest(b, a, named=(), all_groups=True) == {P: (5, "a"), Q: (2, "b")}
    assert lowest(a, b, named=("a",), all_groups=False) == {P: (5, "a"), Q: (9, "a")}


def test_a_named_group_without_an_offset_has_not_begun() -> None:
    assert lowest(("a", committed(q=3)), named=("a",), all_groups=False) == {P: (0, "a"), Q: (3, "a")}
    assert lowest(("a", {}), ("b", committed(p=8)), named=("a",), all_groups=True) == {P: (0, "a"), Q: (0, "a")}


def test_a_deleted_group_holds_nothing_until_it_has_an_offset() -> None:
    hold = TopicHold([P, Q], ("a", "b"), False, b"id")
    for released, expected in (({"t": b"id"}, {Q: (3, "a")}), ({"t": b"other"}, {P: (0, "a"), Q: (3, "a")})):
        found = LowestOffsets([hold])
        found.add("a", committed(q=3), released)
        assert found.lowest == expected


def test_all_groups_are_those_that_have_an_offset() -> None:
    assert lowest(("a", committed(q=3)), ("b", {}), named=(), all_groups=True) == {Q: (3, "a")}


def test_a_negative_offset_holds_every_record() -> None:
    assert lowest(("a", committed(p=-1)), named=(), all_groups=True) == {P: (0, "a")}


def test_each_topic_has_a_hold_of_its_own() -> None:
    other = TopicPartition("u", 0)
    found = LowestOffsets([TopicHold([P], ("a",), False), TopicHold([other], (), True)])
    assert found.wants_all_groups
    assert set(found.named_groups) == {"a"}
    found.add("a", committed(p=5))
    found.add("b", {**committed(p=1), other: committed(p=4)[P]})
    assert found.lowest == {P: (5, "a"), other: (4, "b")}


def test_a_group_with_very_many_offsets_is_searched_only_for_the_partitions_of_the_hold() -> None:
    class Counting(dict[TopicPartition, OffsetCommitValue]):
        looked_up = 0

        def __iter__(self) -> Iterator[TopicPartition]:
            self.looked_up += len(self)
            return super().__iter__()

    value = committed(p=5)[P]
    many = Counting({TopicPartition("t", number): value for number in range(1_000)})
    found = LowestOffsets([TopicHold([P, Q], (), True)])
    found.add("a", many)
    assert found.lowest == {P: (5, "a"), Q: (5, "a")}
    assert many.looked_up == 0

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.wire.v1.metadata_pb2 import MetadataBatch, MetadataRecord, NoOpRecord
from klamm_controller.active.committed_tail import CommittedTail


def entries_of(sizes, first=0):
    made = []
    for size in sizes:
        made.append(
            MetadataBatch(
                term=1,
                base_index=first,
                end_index=first + size,
                records=[MetadataRecord(no_op=NoOpRecord())] * size,
            )
        )
        first += size
    return made


@given(sizes=st.lists(st.integers(1, 20), max_size=40), max_bytes=st.integers(1, 500), group=st.integers(1, 5))
def test_a_reader_gets_all_entries_after_its_index_or_none(sizes, max_bytes, group):
    everything = entries_of(sizes, first=5)
    tail = CommittedTail(max_bytes, 5)
    for start in range(0, len(everything), group):
        tail.extend(everything[start : start + group])
    end_index = everything[-1].end_index if everything else 5
    held = 0
    for index in range(end_index + 2):
        expected = [entry for entry in everything if entry.base_index >= index]
        boundary = index == end_index or any(entry.base_index == index for entry in everything)
        found = tail.after(index)
        if not boundary:
            assert found is None
        elif found is not None:
            assert found == expected
            held = max(held, len(found))
    assert tail.after(end_index) == []
    kept = everything[len(everything) - held :]
    assert held <= 1 or sum(entry.ByteSize() for entry in kept) <= max_bytes
    assert not everything or held >= 1


def test_entries_within_the_byte_bound_are_all_kept():
    everything = entries_of([1] * 10)
    tail = CommittedTail(10_000, 0)
    tail.extend(everything)
    assert tail.after(0) == everything
    assert tail.after(4) == everything[4:]
    assert tail.after(11) is None

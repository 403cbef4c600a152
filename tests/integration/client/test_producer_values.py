"""Keys, values and headers that change while they are sent, that are too large for any record, or of a wrong type."""

from __future__ import annotations

import array
import contextlib
import mmap
import pathlib
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode, SerializationError
from klamm.producer import Producer
from tests.support.scripted_producer import producing
from tests.support.waiting import patience

MessageTooLargeError = EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]
SIZE = 5_000


def send_one(producer: Producer, value: Any, headers: Any = None) -> None:
    producer.send("t", value, headers=headers)


def send_several(producer: Producer, value: Any, headers: Any = None) -> None:
    producer.send_many("t", [b"first", value], headers=headers)


SENDS = pytest.mark.parametrize("send", [send_one, send_several])


@pytest.fixture
def often_switched() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(before_s / 100)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("often_switched")
def test_a_buffer_that_another_thread_changes_is_sent_as_it_was_at_one_time() -> None:
    contents = (b"a" * SIZE, b"b" * SIZE)
    buffer = bytearray(contents[0])
    is_over = threading.Event()

    def change() -> None:
        while not is_over.is_set():
            for content in contents:
                buffer[:] = content

    with producing(1) as (producer, cluster):
        thread = threading.Thread(target=change)
        thread.start()
        for _ in range(500):
            producer.send("t", buffer, memoryview(buffer), headers=[("h", buffer)])
        producer.send_many("t", [buffer] * 100, keys=[memoryview(buffer)] * 100, headers=[("h", buffer)])
        is_over.set()
        thread.join()
        producer.flush(patience())
        records = cluster.records("t")
    assert len(records) == 600
    for record in records:
        assert {record.key, record.value, record.headers[0][1]} <= set(contents)


@pytest.mark.usefixtures("often_switched")
def test_a_buffer_that_another_thread_resizes_is_sent_as_it_was_at_one_time() -> None:
    contents = (b"", b"a" * SIZE)
    buffer = bytearray()
    is_over = threading.Event()

    def resize() -> None:
        while not is_over.is_set():
            # A buffer that is being copied cannot be resized.
            with contextlib.suppress(BufferError):
                buffer[:] = contents[1]
                buffer.clear()

    with producing(1) as (producer, cluster):
        thread = threading.Thread(target=resize)
        thread.start()
        for _ in range(500):
            producer.send("t", buffer)
        is_over.set()
        thread.join()
        producer.flush(patience())
        assert set(cluster.values("t")) <= set(contents)


def test_a_serializer_may_use_the_same_buffer_for_each_record() -> None:
    buffer = bytearray()

    def serialize(number: int) -> bytearray:
        buffer[:] = b"%d" % number
        return buffer

    with producing(1, value_serializer=serialize) as (producer, cluster):
        for number in range(20):
            producer.send("t", number)
        producer.send_many("t", list(range(20, 40)))
        producer.flush(patience())
        assert cluster.values("t") == [b"%d" % number for number in range(40)]


def test_a_list_of_values_may_change_while_it_is_serialized() -> None:
    values: list[Any] = [1, 2, 3]

    def serialize(number: int) -> bytes:
        values.clear()
        return b"%d" % number

    with producing(1, value_serializer=serialize) as (producer, cluster):
        producer.send_many("t", values).result(patience())
        assert cluster.values("t") == [b"1", b"2", b"3"]


def released() -> memoryview:
    view = memoryview(b"value")
    view.release()
    return view


@SENDS
@pytest.mark.parametrize(
    ("value", "headers", "text"),
    [
        (released(), None, "operation forbidden on released memoryview"),
        (array.array("B", b"value"), None, "is array, not bytes"),
        (b"v", [("h", released())], "expected pairs of str and bytes"),
        (b"v", [(b"name", b"x")], "expected pairs of str and bytes"),
        (b"v", [(5, b"x")], "expected pairs of str and bytes"),
        (b"v", [(None, b"x")], "expected pairs of str and bytes"),
        (b"v", [("\ud800", b"x")], "expected pairs of str and bytes"),
        (b"v", [("h", array.array("B", b"x"))], "expected pairs of str and bytes"),
    ],
)
def test_a_record_of_wrong_types_is_refused_and_nothing_is_sent(
    send: Callable[..., None], value: Any, headers: Any, text: str
) -> None:
    with producing(1) as (producer, cluster):
        producer.partitions_for("t")
        with pytest.raises(SerializationError, match=text):
            send(producer, value, headers)
        producer.flush(patience())
        assert cluster.values("t") == []


@pytest.fixture
def two_gib(tmp_path: pathlib.Path) -> Iterator[memoryview]:
    """2 GiB of zeros that take no memory."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(2**31)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data, memoryview(data) as view:
        yield view


@SENDS
@pytest.mark.parametrize("is_header", [False, True])
def test_a_content_of_2_gib_is_refused_before_it_is_copied(
    two_gib: memoryview, send: Callable[..., None], is_header: bool
) -> None:
    with producing(1) as (producer, cluster):
        producer.partitions_for("t")
        tracemalloc.start()
        try:
            with pytest.raises(MessageTooLargeError, match="of a record for topic 't' has 2147483648 bytes"):
                send(producer, *((b"v", [("h", two_gib)]) if is_header else (two_gib,)))
            assert tracemalloc.get_traced_memory()[1] < 2**24
        finally:
            tracemalloc.stop()
        producer.flush(patience())
        assert cluster.values("t") == []

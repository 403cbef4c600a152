"""Tests a killed cluster whose files were damaged afterwards: it starts, keeps all records before the damage and works.

The damage is either what a crash can do to files or what people and disks do to them. A crash can leave a torn tail,
lose small files, or leave files of an unfinished operation behind. People and disks can remove, empty or garble an
index. The places are random; the seed is printed.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator

import pytest

from klamm import Admin, Consumer, KlammError, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from tests.support import seeds
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.reading import read_all
from tests.support.small_disk import fill, make_space, small_disk
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

SEED = seeds.run_seed()
RERUN = f"TEST_SEED={SEED} python -m pytest tests/integration/broker/test_damage.py"
SETTINGS = {"log.segment.bytes": "1048576"}
TP = TopicPartition("ledger", 0)
GROUP = "auditors"
COUNT = 3_000
COMMITTED = 1_234
FIRST_TIMESTAMP_MS = 1_700_000_000_000
CRC_COVERED = 16
"""Bytes of a batch before this one may change without anybody being able to tell: the broker sets them itself."""


def value(number: int) -> bytes:
    return b"%08d" % number + random.Random(number).randbytes(1_000)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory) -> KlammProcess:
    """Returns a killed cluster with several segments, the last of which is not flushed."""
    directory = tmp_path_factory.mktemp("crashed")
    with running_cluster(directory, SETTINGS) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TP.topic, partition_count=1)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            append(producer, range(COUNT))
        commit(cluster.bootstrap, COMMITTED)
        cluster.kill()
    assert len(segments(cluster.data_dir, ".log")) == 3
    return cluster


@pytest.fixture
def cluster(crashed, tmp_path) -> Iterator[KlammProcess]:
    """Yields a copy of the crashed cluster that is not started yet."""
    process = KlammProcess(tmp_path, SETTINGS, port=crashed.port)
    subprocess.run(["cp", "-a", "--sparse=always", crashed.data_dir, process.data_dir], check=True)
    yield process
    if process.running:
        assert process.stop() == 0


@pytest.fixture
def rng(request) -> random.Random:
    print(f"seed {SEED}; rerun: {RERUN}")
    return random.Random(f"{SEED}-{request.node.name}")


def append(producer: Producer, numbers: range) -> None:
    """Sends the numbered records in many small batches."""
    for begin in range(numbers.start, numbers.stop, 20):
        for number in range(begin, min(begin + 20, numbers.stop)):
            producer.send(TP.topic, value(number), partition=0, timestamp_ms=FIRST_TIMESTAMP_MS + number * 1_000)
        producer.flush()


def commit(bootstrap: str, offset: int) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets(GROUP, {TP: OffsetAndMetadata(offset)})


def committed(bootstrap: str) -> int | None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        found = admin.list_group_offsets(GROUP).get(TP)
        return None if found is None else found.offset


def partition_dir(data_dir: pathlib.Path) -> pathlib.Path:
    return data_dir / "broker" / f"{TP.topic}-{TP.partition}"


def segments(data_dir: pathlib.Path, suffix: str) -> list[pathlib.Path]:
    """Returns the partition's segment files, the active one last."""
    return sorted(partition_dir(data_dir).glob(f"*{suffix}"))


def batches(log: pathlib.Path) -> list[tuple[int, int, int]]:
    """Returns (position, size in bytes, base offset) of every batch of a segment."""
    content = log.read_bytes()
    found = []
    position = 0
    while position < len(content):
        base_offset, length = struct.unpack_from(">qi", content, position)
        found.append((position, 12 + length, base_offset))
        position += 12 + length
    return found


def check_intact_and_usable(cluster: KlammProcess, end: int) -> None:
    """Checks that all records below `end` are found by offset and by time, and that more records can be appended."""
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        append(producer, range(end, end + 50))
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([TP])
        with verdict():
            assert consumer.end_offsets([TP])[TP] == end + 50, RERUN
        consumer.seek_to_beginning(TP)
        read = itertools.chain.from_iterable(poll(consumer) for _ in itertools.repeat(None))
        for number, record in enumerate(itertools.islice(read, end + 50)):
            with verdict():
                assert (record.offset, record.value) == (number, value(number)), RERUN
        for number in range(0, end, 293):
            consumer.seek(TP, number)
            with verdict():
                assert next(iter(poll(consumer))).offset == number, RERUN
            timestamp_ms = FIRST_TIMESTAMP_MS + number * 1_000
            with verdict():
                assert consumer.offsets_for_times({TP: timestamp_ms})[TP].offset == number, RERUN


def poll(consumer: Consumer) -> list:
    return list(consumer.poll(timeout_ms=int(patience() * 1_000), max_records=500).get(TP, []))


# --- the tail of the active segment


def test_all_records_and_offsets_are_intact_without_damage(cluster):
    cluster.start()
    assert committed(cluster.bootstrap) == COMMITTED
    check_intact_and_usable(cluster, COUNT)


def test_a_torn_tail_is_cut_back_to_the_last_whole_batch(cluster, rng):
    log = segments(cluster.data_dir, ".log")[-1]
    whole = batches(log)
    cut = rng.randrange(1, sum(size for _, size, _ in whole))
    os.truncate(log, cut)
    cluster.start()
    check_intact_and_usable(cluster, next(base for position, size, base in whole if position + size > cut))


def test_a_tail_of_zeros_is_cut_off(cluster, rng):
    """Some file systems leave zeros in a file if its size was written before its blocks."""
    log = segments(cluster.data_dir, ".log")[-1]
    with log.open("ab") as file:
        file.write(bytes(rng.randrange(1, 100_000)))
    cluster.start()
    check_intact_and_usable(cluster, COUNT)


def test_a_flipped_byte_in_the_tail_ends_the_log_before_its_batch(cluster, rng):
    log = segments(cluster.data_dir, ".log")[-1]
    position, size, base_offset = rng.choice(batches(log))
    content = bytearray(log.read_bytes())
    content[position + rng.randrange(CRC_COVERED, size)] ^= 1 << rng.randrange(8)
    log.write_bytes(content)
    cluster.start()
    check_intact_and_usable(cluster, base_offset)


# --- indexes


def garbage(path: pathlib.Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.randrange(1, 500)))


def whole_entries_of_garbage(path: pathlib.Path, rng: random.Random) -> None:
    entry_bytes = 8 if path.suffix == ".index" else 12
    path.write_bytes(rng.randbytes(entry_bytes * rng.randrange(1, 50)))


def empty(path: pathlib.Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def missing(path: pathlib.Path, rng: random.Random) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [missing, empty, garbage, whole_entries_of_garbage])
def test_damaged_indexes_are_rebuilt(cluster, rng, damage):
    for path in [*segments(cluster.data_dir, ".index"), *segments(cluster.data_dir, ".timeindex")]:
        damage(path, rng)
    cluster.start()
    check_intact_and_usable(cluster, COUNT)


def test_indexes_damaged_after_a_clean_shutdown_are_rebuilt(cluster, rng):
    cluster.start()
    assert cluster.stop() == 0
    for path in [*segments(cluster.data_dir, ".index"), *segments(cluster.data_dir, ".timeindex")]:
        rng.choice([missing, empty, garbage])(path, rng)
    cluster.start()
    check_intact_and_usable(cluster, COUNT)


# --- small files


@pytest.mark.parametrize(
    "names",
    [
        ["ledger-0/leader-epoch-checkpoint"],
        ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"],
    ],
    ids=lambda names: names[0],
)
def test_missing_checkpoint_files_lose_no_records_or_committed_offsets(cluster, names):
    for name in names:
        (cluster.data_dir / "broker" / name).unlink(missing_ok=True)
    cluster.start()
    assert committed(cluster.bootstrap) == COMMITTED
    check_intact_and_usable(cluster, COUNT)


def test_only_a_partition_without_its_metadata_file_goes_offline(cluster, tmp_path):
    """The records could be those of a deleted topic of the same name.

    The broker neither serves nor deletes them on a guess.
    """
    identity = partition_dir(cluster.data_dir) / "partition.metadata"
    identity.rename(tmp_path / "identity")
    cluster.start()
    klamm = KlammCommand(cluster.bootstrap)
    klamm.ok("topics", "create", "other")
    klamm.ok("produce", "other", stdin="a\n")
    impatient = ("--config", "delivery.timeout.ms=1500", "--config", "request.timeout.ms=1000")
    klamm.refused(3, "produce", TP.topic, *impatient, stdin="a\n")
    assert f"{partition_dir(cluster.data_dir)} has records but no partition.metadata" in cluster.log_path.read_text()
    assert cluster.stop() == 0
    (tmp_path / "identity").rename(identity)
    cluster.start()
    check_intact_and_usable(cluster, COUNT)


def test_leftover_files_of_interrupted_operations_are_removed(cluster, rng):
    directory = partition_dir(cluster.data_dir)
    log = segments(cluster.data_dir, ".log")[0]
    shutil.copy(log, directory / f"{log.name}.swap")  # from a finished compaction, with the same records
    leftovers = [
        directory / f"{9_000:020}.log.deleted",
        directory / f"{9_000:020}.index.deleted",
        directory / f"{9_000:020}.log.cleaned",
        directory / "leader-epoch-checkpoint.tmp",
        directory / f"{9_000:020}.timeindex",
    ]
    for path in leftovers:
        garbage(path, rng)
    deleted_partition = cluster.data_dir / "broker" / "gone-0.0123456789abcdef0123456789abcdef-delete"
    shutil.copytree(directory, deleted_partition)
    cluster.start()
    check_intact_and_usable(cluster, COUNT)
    assert not any(path.exists() for path in leftovers)
    assert not list(directory.glob("*.swap"))


def test_a_torn_tail_of_the_offsets_topic_loses_no_group(cluster, rng):
    """The cluster loses only the records after the tear, and the group can commit again."""
    logs = (cluster.data_dir / "broker").glob("__consumer_offsets-*/*.log")
    (log,) = [path for path in logs if GROUP.encode() in path.read_bytes()]
    os.truncate(log, rng.randrange(1, log.stat().st_size))
    cluster.start()
    assert committed(cluster.bootstrap) in (None, COMMITTED)
    commit(cluster.bootstrap, 77)
    cluster.kill()
    cluster.start()
    assert committed(cluster.bootstrap) == 77
    check_intact_and_usable(cluster, COUNT)


# --- a full disk


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    with small_disk(tmp_path / "disk", 24) as path:
        yield path


def test_a_full_disk_refuses_writes_and_everything_works_again_when_there_is_space(disk):
    with running_cluster(disk) as cluster:
        settings = {"bootstrap_servers": cluster.bootstrap}
        with (
            Admin(**settings, default_api_timeout_ms=4_000) as admin,
            Producer(**settings, delivery_timeout_ms=4_000, request_timeout_ms=3_000, linger_ms=0) as producer,
        ):
            admin.create_topics([NewTopic(TP.topic, partition_count=1)])
            admin.alter_group_offsets(GROUP, {TP: OffsetAndMetadata(1)})
            fill(disk, left_bytes=200_000)

            acknowledged = send_until_refused(producer)
            assert admin.list_topics().keys() == {TP.topic}
            fill_up_groups(admin, cluster.bootstrap)
            late = fill_up_metadata(admin)
            assert read_numbers(cluster.bootstrap) == list(range(acknowledged))
            assert cluster.running

            make_space(disk)
            wait_until(lambda: late[-1] in admin.list_topics())  # the client got no refusal for this topic
            admin.create_topics([NewTopic("later", partition_count=1)])
            for topic in (TP.topic, *late, "later"):
                producer.send(topic, value(acknowledged), partition=0).result(patience())
            admin.alter_group_offsets(GROUP, {TP: OffsetAndMetadata(2)})
            assert read_numbers(cluster.bootstrap) == list(range(acknowledged + 1))
        cluster.kill()
        cluster.start()
        assert read_numbers(cluster.bootstrap) == list(range(acknowledged + 1))
        assert committed(cluster.bootstrap) == 2


def send_until_refused(producer: Producer) -> int:
    """Sends records until one is refused. Returns the number of acknowledged records."""
    for number in range(1_000):
        try:
            assert producer.send(TP.topic, value(number), partition=0).result(patience()).offset == number
        except KlammError as error:
            assert "KAFKA_STORAGE_ERROR: no space left" in str(error)  # noqa: PT017 - which send it is, is not known
            return number
    raise AssertionError("the disk never was full")


def fill_up_metadata(admin: Admin) -> list[str]:
    """Creates topics until one times out. The first ones may still fit into disk blocks that the log has already."""
    late = []
    for number in range(200):
        late.append(f"late-{number}")
        try:
            admin.create_topics([NewTopic(late[-1], partition_count=1)])
        except KlammError as error:
            assert "REQUEST_TIMED_OUT" in str(error)  # noqa: PT017 - which creation it is, is not known
            return late
    raise AssertionError("the disk never was full")


def fill_up_groups(admin: Admin, bootstrap: str) -> None:
    """Commits until a commit is refused.

    The refused commit must not be visible, and the last accepted one must remain.
    """
    before = 1
    for offset in range(2, 2_000):
        try:
            admin.alter_group_offsets(GROUP, {TP: OffsetAndMetadata(offset, metadata="m" * 3_000)})
        except KlammError:
            assert committed(bootstrap) == before
            return
        before = offset
    raise AssertionError("the disk never was full")


def read_numbers(bootstrap: str) -> list[int]:
    return [int(record.value[:8]) for record in read_all(bootstrap, [TP])]

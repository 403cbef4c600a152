"""The workload "interrupts". Programs use the Python clients, and are interrupted at random times: by Ctrl-C, by signal
handlers that use the same client, and by cancellations. No server fails.

These properties must hold. No call hangs. Each record that `send` took is in the log exactly once, and the record of an
interrupted `send` at most once. A transaction is whole or absent, and whole if its commit returned. A consumer group
handles each record. It handles a record twice only if the program was interrupted that handled it first.
"""

from __future__ import annotations

import pathlib
import random
import time
from collections import Counter
from collections.abc import Iterable

from klamm import Admin, Consumer, NewTopic, Producer
from tests.chaos.klammchaos.interrupt_load import (
    READ,
    READER,
    RECORDS_PER_TRANSACTION,
    SENT,
    TRANSACTED,
    Interrupted,
    Known,
)
from tests.chaos.klammchaos.interruptions import watched
from tests.support.klamm_process import KlammProcess
from tests.support.topic_reading import read_topics
from tests.support.violation import require

PARTITIONS = 3
TO_READ = 30_000
"""The records for the consumers, which are more than they can read in some minutes."""


def run(*, duration_s: float, seed: int, directory: pathlib.Path, only: str = "") -> None:
    """Runs the workload and prints what was interrupted. Only kinds with `only` in their names run. Raises
    AssertionError if a property does not hold."""
    cluster = KlammProcess(directory)
    cluster.start()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS) for topic in (SENT, TRANSACTED, READ)])
    written = write_to_read(cluster.bootstrap)
    rng, known = random.Random(seed), Known()
    clients = Interrupted(cluster.bootstrap, rng, known)
    kinds = [kind for kind in clients.kinds if only in kind.__name__]
    assert kinds, f"no kind has {only!r} in its name"
    until_s = time.monotonic() + duration_s
    while time.monotonic() < until_s:
        with watched():
            rng.choice(kinds)()
    print(describe(known), flush=True)
    with watched():
        handle_the_rest(cluster.bootstrap, known, written)
    check_sent(values(cluster.bootstrap, SENT), known)
    check_transactions(values(cluster.bootstrap, TRANSACTED), known)
    check_handled(written, known)
    require(cluster.stop() == 0, "klamm up did not end in order")


def write_to_read(bootstrap: str) -> set[str]:
    """Writes the records for the consumers. Returns their values."""
    written = {str(number) for number in range(TO_READ)}
    with Producer[bytes, str](bootstrap_servers=bootstrap, value_serializer="string", linger_ms=50) as producer:
        for value in written:
            producer.send(READ, value)
    return written


def values(bootstrap: str, topic: str) -> Counter[str]:
    """Returns how often each value is in the topic, as a read_committed consumer sees it."""
    return Counter(record.value.decode() for record in read_topics(bootstrap, topic))


def handle_the_rest(bootstrap: str, known: Known, written: set[str]) -> None:
    """Handles the records that the interrupted consumers left over."""
    settings = {**READER, "bootstrap.servers": bootstrap, "consumer.timeout.ms": 10_000}
    with Consumer[str, str](settings) as consumer:
        consumer.subscribe([READ])
        for record in consumer:
            known.handled[record.value] += 1
            if len(known.handled) == len(written):
                break


def check_sent(found: Counter[str], known: Known) -> None:
    """Raises Violation unless each record that `send` took is there once, and no other one but that of an interrupted
    `send`."""
    by_run: dict[str, Counter[int]] = {}
    for value, count in found.items():
        run_name, _, number = value.partition(":")
        by_run.setdefault(run_name, Counter())[int(number)] = count
    for run_name, count in known.returned.items():
        numbers = by_run.pop(run_name, Counter())
        lost = [number for number in range(count) if not numbers[number]]
        require(not lost, f"run {run_name}: send took {count} records, and these are lost: {_shown(lost)}")
        unknown = [number for number in numbers if number > count]
        require(not unknown, f"run {run_name}: send took {count} records, and these are there, too: {_shown(unknown)}")
        doubled = [number for number in numbers if numbers[number] > 1]
        require(not doubled, f"run {run_name}: these records are there more than once: {_shown(doubled)}")
    # A run whose first `send` was interrupted took no record.
    strange = {name for name, numbers in by_run.items() if set(numbers) != {0} or numbers[0] != 1}
    require(not strange, f"these runs sent more than the record that was interrupted: {_shown(strange)}")


def check_transactions(found: Counter[str], known: Known) -> None:
    """Raises Violation unless each transaction is whole or absent, and whole if its commit returned."""
    doubled = [value for value, count in found.items() if count > 1]
    require(not doubled, f"these records of transactions are there more than once: {_shown(doubled)}")
    sizes = Counter(value.partition(":")[0] for value in found)
    for run_name, is_committed in known.committed.items():
        expected = {RECORDS_PER_TRANSACTION} if is_committed else {0, RECORDS_PER_TRANSACTION}
        require(
            sizes[run_name] in expected, f"transaction {run_name}: {sizes[run_name]} records, committed={is_committed}"
        )


def check_handled(written: set[str], known: Known) -> None:
    """Raises Violation unless each record was handled, and twice only after an interrupt."""
    lost = written - set(known.handled)
    require(not lost, f"no consumer handled these records: {_shown(lost)}")
    doubled = [one for one, count in known.handled.items() if count > 1 and one not in known.interrupted_readers]
    require(not doubled, f"these records were handled twice, although nothing was interrupted: {_shown(doubled)}")


def describe(known: Known) -> str:
    """Returns the number of interrupts of each kind."""
    interrupts = sum(count for kind, count in known.runs.items() if not kind.endswith(", in time"))
    lines = [f"  {count:6} {kind}" for kind, count in sorted(known.runs.items())]
    return "\n".join([f"{interrupts} interrupts", *lines])


def _shown(items: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, items))[:10])

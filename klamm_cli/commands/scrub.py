"""`klamm log scrub`: makes brokers read their logs to find damage, and shows the damage that they found."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.model import TopicPartition
from klamm_cli.commands.waiting import Report
from klamm_cli.console.change import DryRun
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    fail,
    print_json,
    print_lines,
    print_rows,
    print_sentences,
)
from klamm_cli.status.copies import Amount, Replicas, bytes_read, current_replicas
from klamm_cli.text.amounts import counted

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import DamagedSegment, ScrubDescription

Scrubs = Mapping[int, Sequence["ScrubDescription"]]
"""The scrubs of each broker, by broker id."""

_POLL_S: Final = 0.5


def scrub(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[:PARTITION]]...", help="The topics or partitions [default: all]."),
    ] = None,
    brokers: Annotated[
        list[int] | None, typer.Option("--broker", metavar="BROKER", help="Only this broker (its node.id); repeatable.")
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Start no scrub; show the brokers' progress and findings.")
    ] = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Find damaged segments of logs and repair them.

    The brokers start to read all closed segments, and the command waits until they have finished.

    Without this command, brokers do the same once every log.scrub.interval.ms (a week). They read from disk, at most
    log.scrub.bytes.per.second. A broker repairs a damaged segment with the records of another in-sync replica. A
    leader first hands over its leadership. If there is no such replica, the damage stays, and the command shows it.
    The active segment is not read, because a broker checks it after a crash when it starts.

    After Ctrl-C, the brokers continue; --status shows their progress.

    Exit status: 0, or 1 if there is damage that could not be repaired."""
    if status and validate_only:
        fail("--status and --dry-run exclude each other: --status starts no scrub", ExitStatus.USAGE)
    topics, partitions = _parse(names or [])
    with connected(bootstrap, timeout) as admin:
        if not status:
            admin.describe_topics(
                sorted({*topics, *(partition.topic for partition in partitions)})
            )  # raises for unknown topics
        starts = not (status or validate_only)
        found = _run(admin, topics, partitions, brokers) if starts else _describe(admin, topics, partitions, brokers)
    if validate_only and not as_json:
        replicas = counted(sum(map(len, found.values())), "replica")
        print_sentences(f"would read {replicas} on {counted(len(found), 'broker')}")
        return
    if as_json:
        print_json([_row(broker_id, replica) for broker_id, scrubs in sorted(found.items()) for replica in scrubs])
    else:
        if status:
            _print_status(found)
        _print_damages(found)
    if not validate_only and any(replica.unrepaired for scrubs in found.values() for replica in scrubs):
        raise typer.Exit(int(ExitStatus.FAILED))


def _parse(names: Iterable[str]) -> tuple[list[str], list[TopicPartition]]:
    topics, partitions = [], []
    for name in names:
        topic, colon, number = name.rpartition(":")
        if not colon:
            topics.append(name)
        elif topic and number.isascii() and number.isdigit():
            partitions.append(TopicPartition(topic, int(number)))
        else:
            fail(f"{name!r}: expected TOPIC or TOPIC:PARTITION", ExitStatus.USAGE)
    return topics, partitions


def _describe(
    admin: Admin, topics: Sequence[str], partitions: Sequence[TopicPartition], brokers: Sequence[int] | None
) -> Scrubs:
    return admin.describe_scrubs(partitions, brokers, topics=topics)


def _run(
    admin: Admin, topics: Sequence[str], partitions: Sequence[TopicPartition], brokers: Sequence[int] | None
) -> Scrubs:
    before = {
        (broker_id, scrub.tp): scrub.finished_ms
        for broker_id, scrubs in _describe(admin, topics, partitions, brokers).items()
        for scrub in scrubs
    }
    began_ms = round(time.time() * 1000)
    asked = admin.scrub_logs(partitions, brokers, topics=topics)
    found = _wait(admin, topics, partitions, asked)
    # A broker that was restarted has forgotten its requested scrubs.
    unread = [
        f"{scrub.tp} on broker {broker_id}"
        for broker_id, scrubs in found.items()
        for scrub in scrubs
        if scrub.tp in asked[broker_id] and scrub.finished_ms == before.get((broker_id, scrub.tp), -1)
    ]
    if unread:
        fail(f"not read to the end, for the broker was started again: {', '.join(unread[:10])}; run it again")
    return {broker_id: [_since(scrub, began_ms) for scrub in scrubs] for broker_id, scrubs in found.items()}


def _wait(
    admin: Admin,
    topics: Sequence[str],
    partitions: Sequence[TopicPartition],
    asked: Mapping[int, Sequence[TopicPartition]],
) -> Scrubs:
    """Waits until the brokers have read the replicas that they were asked to read, and returns their scrubs."""
    total = sum(map(len, asked.values()))

    @cache
    def replicas() -> Replicas:
        return current_replicas(admin.describe_log_dirs(list(asked)))

    with Report() as report:
        while True:
            found = _describe(admin, topics, partitions, list(asked))
            waiting = sum(scrub.asked for scrubs in found.values() for scrub in scrubs)
            damaged = sum(len(scrub.unrepaired) for scrubs in found.values() for scrub in scrubs)
            text = f"{total - waiting} of {total} replicas read, {damaged} damaged"
            report.show(text, partial(_amount_read, asked, found, replicas))
            if not waiting:
                return found
            time.sleep(_POLL_S)


def _amount_read(
    asked: Mapping[int, Sequence[TopicPartition]], found: Scrubs, replicas: Callable[[], Replicas]
) -> Amount:
    return bytes_read(asked, found, replicas())


def _since(replica: ScrubDescription, began_ms: int) -> ScrubDescription:
    """Returns the scrub without damage that was found before `began_ms` and has been repaired."""
    from dataclasses import replace

    unrepaired = replica.unrepaired
    return replace(
        replica,
        damages=tuple(damage for damage in replica.damages if damage in unrepaired or damage.found_ms >= began_ms),
    )


def _print_status(found: Scrubs) -> None:
    rows = [
        (broker_id, *scrub.tp, _state(scrub), _time(scrub.finished_ms), len(scrub.unrepaired))
        for broker_id, scrubs in sorted(found.items())
        for scrub in scrubs
    ]
    print_rows(("broker", "topic", "partition", "state", "last read", "damaged"), rows, as_json=False)


def _state(replica: ScrubDescription) -> str:
    if replica.next_offset >= 0:
        return f"{'reading' if replica.running else 'waiting'} at offset {replica.next_offset} of {replica.end_offset}"
    return "waiting" if replica.asked else "idle"


def _time(time_ms: int) -> str:
    if time_ms < 0:
        return "never"
    return datetime.datetime.fromtimestamp(time_ms / 1000).isoformat(" ", "seconds")


def _print_damages(found: Scrubs) -> None:
    for broker_id, scrubs in sorted(found.items()):
        for scrub in scrubs:
            for damage in scrub.damages:
                print_lines(f"broker {broker_id}, {scrub.tp}, {damage.path}: {damage.state.value}: {damage.text}")
                for line in damage.lines:
                    print_lines(f"    {line}")


def _row(broker_id: int, replica: ScrubDescription) -> dict[str, Any]:
    return {
        "broker": broker_id,
        "topic": replica.tp.topic,
        "partition": replica.tp.partition,
        "asked": replica.asked,
        "next_offset": replica.next_offset,
        "end_offset": replica.end_offset,
        "finished_ms": replica.finished_ms,
        "damages": [_damage(damage) for damage in replica.damages],
    }


def _damage(segment: DamagedSegment) -> dict[str, Any]:
    return {
        "path": segment.path,
        "found_ms": segment.found_ms,
        "state": segment.state.value,
        "text": segment.text,
        "lines": list(segment.lines),
    }

"""`klamm topics`: create, list, describe, add partitions, spread, size, elect leaders, delete."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm_cli.commands.topic_spread import spread
from klamm_cli.console.assignments import parse_assignments
from klamm_cli.console.change import DryRun, print_change, tense
from klamm_cli.console.command import examples, new_app
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
    print_message,
    print_rows,
    print_sentences,
)
from klamm_cli.sizing import MB, Need, Size, size_of
from klamm_cli.text.amounts import counted
from klamm_cli.text.times import parse_duration_ms

if TYPE_CHECKING:
    from klamm import Admin, NewTopic
    from klamm.admin import CreatedTopic, ElectionType, TopicDescription
    from klamm.errors import BrokerError
    from klamm.model import TopicPartition

app = new_app("Create, list, describe, extend, size and delete topics; elect leaders.")

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="One or more topics.", show_default=False)]
IfExists = Annotated[bool, typer.Option("--if-exists", help="Skip topics that do not exist.")]
_FROM_CLUSTER = -1
_GROUPS_SHOWN = 3
_TopicExistsError = EXCEPTIONS[ErrorCode.TOPIC_ALREADY_EXISTS]
_UnknownTopicError = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@app.command(
    "create",
    epilog=examples(
        "klamm topics create orders --partitions 6 --replication-factor 3",
        "klamm topics create latest --config cleanup.policy=compact --if-not-exists",
    ),
)
def create(
    names: Names,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            metavar="NUMBER",
            help="The number of partitions [default: the cluster's num.partitions].",
            show_default=False,
        ),
    ] = _FROM_CLUSTER,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="NUMBER",
            help="The number of replicas of each partition [default: the cluster's default.replication.factor].",
            show_default=False,
        ),
    ] = _FROM_CLUSTER,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="Set a topic config; repeatable."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Skip topics that exist, even if they differ.")
    ] = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Create topics."""
    from klamm import NewTopic

    configs = parse_assignments(config or [], "--config")
    topics = [NewTopic(name, partitions, replication_factor, configs=configs) for name in dict.fromkeys(names)]
    with connected(bootstrap, timeout) as admin:
        if if_not_exists:
            created = _create_missing(admin, topics, validate_only=validate_only)
        else:
            created = admin.create_topics(topics, validate_only=validate_only)
    rows = [(topic.name, topic.topic_id, topic.partition_count, topic.replication_factor) for topic in created.values()]
    print_rows(("topic", "id", "partitions", "replication_factor"), rows, as_json=as_json, json_only={"id"})


def _create_missing(admin: Admin, topics: list[NewTopic], *, validate_only: bool) -> dict[str, CreatedTopic]:
    """Creates the topics that do not exist, and returns them. Creates one topic per request, because another client may
    create one of the topics at the same moment."""
    created: dict[str, CreatedTopic] = {}
    for topic in topics:
        try:
            created |= admin.create_topics([topic], validate_only=validate_only)
        except _TopicExistsError:
            print_message(f"topic {topic.name} exists")
    return created


def _described(admin: Admin, names: list[str] | None, *, if_exists: bool) -> dict[str, TopicDescription]:
    """Returns the named topics, or all topics if `names` is empty. With `if_exists`, prints a line for each topic that
    does not exist, and skips it."""
    if names and not if_exists:
        return admin.describe_topics(names)
    there = admin.list_topics(include_internal=True)
    for name in names or ():
        if name not in there:
            print_message(f"there is no topic {name}")
    return {name: there[name] for name in names if name in there} if names else there


@app.command("list", epilog=examples("klamm topics list"))
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="List internal topics, too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """List topics with their partitions and replication factors."""
    with connected(bootstrap, timeout) as admin:
        topics = admin.list_topics(include_internal=internal)
    rows = [
        (topic.name, len(topic.partitions), len(topic.partitions[0].replicas)) for _, topic in sorted(topics.items())
    ]
    print_rows(("topic", "partitions", "replication_factor"), rows, as_json=as_json)


@app.command(
    "describe",
    epilog=examples("klamm topics describe orders", "klamm topics describe --under-replicated-partitions --json"),
)
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="The topics [default: all].")] = None,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Show only partitions with a replica that is not in sync."),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Show only partitions without a leader.")
    ] = False,
    refusing: Annotated[
        bool, typer.Option("--refusing-partitions", help="Show only partitions that reject records with acks=all.")
    ] = False,
    if_exists: IfExists = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show each partition's leader, replicas and offsets.

    The table shows these columns only when they are not empty. ELR: replicas that are not in sync but have every
    acknowledged record. LAST KNOWN ELR: the last leader of a partition without a leader. ADDING and REMOVING: the
    replicas that a reassignment adds and removes. OFFLINE: replicas that cannot be reached. RESIGNED: replicas that
    must not lead because of a full disk or a damaged log. REFUSES: why the partition rejects records with acks=all."""
    from concurrent.futures import ThreadPoolExecutor

    from klamm import TopicPartition
    from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    with connected(bootstrap, timeout) as admin:
        topics = _described(admin, names, if_exists=if_exists)
        shown = [
            (TopicPartition(name, partition.partition), partition)
            for name, topic in sorted(topics.items())
            for partition in topic.partitions
            if not (under_replicated and not partition.is_under_replicated)
            and not (unavailable and partition.leader >= 0)
            and not (refusing and not partition.refusal)
        ]
        # Only a leader can return offsets, so a partition without a leader is shown without them.
        led = [tp for tp, partition in shown if partition.leader >= 0]
        # Send both requests at once: this process reads one answer while the brokers prepare the other.
        with ThreadPoolExecutor(2) as both:
            asked = (dict.fromkeys(led, timestamp) for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP))
            starts, ends = both.map(admin.list_offsets, asked)
    rows = []
    for tp, partition in shown:
        start, end = starts.get(tp), ends.get(tp)
        offsets = (start and start.offset, end and end.offset)
        special = (
            partition.elr,
            partition.last_known_elr,
            partition.adding_replicas,
            partition.removing_replicas,
            partition.offline_replicas,
        )
        refusal = (partition.resigned_replicas, partition.refusal)
        rows.append(
            (
                *tp,
                partition.leader,
                partition.leader_epoch,
                partition.replicas,
                partition.isr,
                *special,
                *refusal,
                *offsets,
            )
        )
    columns = (
        *("topic", "partition", "leader", "leader_epoch", "replicas", "isr"),
        *("elr", "last_known_elr", "adding", "removing", "offline", "resigned", "refuses"),
        *("start_offset", "end_offset"),
    )
    empty = {column for index, column in enumerate(columns) if all(row[index] in ((), "") for row in rows)}
    print_rows(columns, rows, as_json=as_json, json_only={"leader_epoch", *empty} - {"replicas", "isr"})


@app.command(
    "elect-leaders",
    epilog=examples("klamm topics elect-leaders orders", "klamm topics elect-leaders orders --partition 2 --unclean"),
)
def elect_leaders(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="The topics. With --partition, only one.")
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="NUMBER", help="Only this partition of the topic; repeatable."),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Elect any replica for a partition without a leader, even if acknowledged records are lost.",
        ),
    ] = False,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Elect the leaders of all partitions.")] = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Elect the preferred leaders of partitions.

    The preferred leader is the first of the replicas (kafka-leader-election). The command shows the partitions whose
    election succeeded or failed, and leaves out those that need no election."""
    from klamm.admin import ElectionType
    from klamm.model import TopicPartition

    if bool(names) == all_topics:
        fail("expected topics, or --all-topics", ExitStatus.USAGE)
    if partitions and len(names or ()) != 1:
        fail("--partition: expected one topic", ExitStatus.USAGE)
    with connected(bootstrap, timeout) as admin:
        wanted = None
        if names:
            described = admin.describe_topics(names)
            wanted = [
                TopicPartition(name, number)
                for name in names
                for number in partitions or range(len(described[name].partitions))
            ]
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        results = _foresee(admin, kind, wanted) if validate_only else admin.elect_leaders(kind, wanted)
    not_needed = EXCEPTIONS[ErrorCode.ELECTION_NOT_NEEDED]
    shown = {tp: error for tp, error in sorted(results.items()) if not isinstance(error, not_needed)}
    elected = tense(validate_only, "elected", "be elected")
    rows = [(*tp, elected if error is None else str(error)) for tp, error in shown.items()]
    print_rows(("topic", "partition", "result"), rows, as_json=as_json)
    if any(shown.values()):
        raise typer.Exit(int(ExitStatus.FAILED))


def _foresee(
    admin: Admin, kind: ElectionType, wanted: list[TopicPartition] | None
) -> dict[TopicPartition, BrokerError | None]:
    """Returns the results that an election would have now, by partition."""
    from klamm.model import TopicPartition
    from klamm_cli.dry_run.elections import election_error

    described = {
        TopicPartition(name, partition.partition): partition
        for name, topic in admin.list_topics(include_internal=True).items()
        for partition in topic.partitions
    }
    brokers = admin.describe_cluster().brokers
    active = [broker.node_id for broker in brokers if not (broker.fenced or broker.in_controlled_shutdown)]
    return {
        tp: election_error(*tp, described.get(tp), kind, active) for tp in (described if wanted is None else wanted)
    }


@app.command(
    "add-partitions",
    epilog=examples("klamm topics add-partitions orders 12", "klamm topics add-partitions orders 12 --force"),
)
def add_partitions(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    total: Annotated[
        int, typer.Argument(metavar="TOTAL", help="The number of partitions after the change.", show_default=False)
    ],
    if_exists: IfExists = False,
    force: Annotated[
        bool, typer.Option("--force", help="Add them although groups have unread records with keys.")
    ] = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Add partitions to a topic.

    After that, a key may go to another partition than before. The command refuses this while a group has unread
    records with keys. With --force, that group may read later records of a key before the earlier ones. `klamm topics
    spread` keeps the order."""
    with connected(bootstrap, timeout) as admin:
        try:
            admin.create_partitions({name: total}, validate_only=True)
            if not force:
                _refuse_unread_keys(admin, bootstrap, name)
            if not validate_only:
                admin.create_partitions({name: total})
        except _UnknownTopicError:
            if not if_exists:
                raise
            print_message(f"there is no topic {name}")
            print_change({"topic": name, "partitions": None}, as_json=as_json, validate_only=validate_only)
            return
    line = f"{name} {tense(validate_only, 'has', 'have')} {counted(total, 'partition')}"
    print_change({"topic": name, "partitions": total}, line, as_json=as_json, validate_only=validate_only)


def _refuse_unread_keys(admin: Admin, bootstrap: str, topic: str) -> None:
    from klamm_cli.status.unread_keys import groups_with_unread_keys

    try:
        counts = groups_with_unread_keys(admin, bootstrap, topic)
    except KlammError as error:
        fail(f"cannot see whether groups have unread records with keys in {topic}: {error}; --force skips this check")
    if counts:
        named = list(counts.items())[:_GROUPS_SHOWN]
        groups = ", ".join(f"{group} ({counted(count, 'record')})" for group, count in named)
        more = f" and {len(counts) - len(named)} more" if len(counts) > len(named) else ""
        fail(
            f"groups have unread records with keys in {topic}: {groups}{more}. A key may go to another partition, and"
            " they would read its records out of order. Try again when they have read them, use --force, or"
            " copy the topic with `klamm topics spread`"
        )


app.command(
    "spread",
    epilog=examples(
        "klamm topics spread orders orders-12 --partitions 12",
        "klamm topics spread orders orders-12 --partitions 12 --cut",
    ),
)(spread)


@app.command(
    "size",
    epilog=examples(
        "klamm topics size --target-mb-s 50 --record-bytes 5e3 --partition-mb-s 30",
        "klamm topics size --target-mb-s 9 --record-bytes 200 --retention 7d --json",
    ),
)
def size(
    target_mb_s: Annotated[
        float,
        typer.Option(
            "--target-mb-s",
            metavar="MB",
            min=0.001,
            help="The MB/s of records at the busiest time, before compression.",
            show_default=False,
        ),
    ],
    record_bytes: Annotated[
        float,
        typer.Option(
            "--record-bytes",
            metavar="BYTES",
            min=1,
            help="The mean size of a record: its key, value and headers.",
            show_default=False,
        ),
    ],
    partition_mb_s: Annotated[
        float | None,
        typer.Option(
            "--partition-mb-s",
            metavar="MB",
            min=0.001,
            help="The MB/s that producers write to one partition, as `klamm perf produce` measures it [default: no"
            " limit].",
        ),
    ] = None,
    consumer_records_s: Annotated[
        float | None,
        typer.Option(
            "--consumer-records-s",
            metavar="NUMBER",
            min=0.001,
            help="How many records a second one consumer of your program processes [default: no limit].",
        ),
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option("--retention", metavar="TIME", help="How long records are kept, such as 12h or 7d, for the disk."),
    ] = None,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", "-r", metavar="NUMBER", min=1, help="The number of replicas of each partition."
        ),
    ] = 3,
    groups: Annotated[
        int, typer.Option("--groups", metavar="NUMBER", min=0, help="The number of groups that read the topic.")
    ] = 1,
    brokers: Annotated[
        int,
        typer.Option(
            "--brokers",
            metavar="NUMBER",
            min=1,
            help="The number of brokers. Each leads equally many partitions.",
        ),
    ] = 1,
    stored_ratio: Annotated[
        float,
        typer.Option(
            "--stored-ratio",
            metavar="RATIO",
            min=0.001,
            help="The size after compression divided by the size before.",
        ),
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Compute the partitions, disk and network of a topic.

    The command asks no cluster. It needs one partition for each time that --partition-mb-s or --consumer-records-s goes
    into the target, and rounds up to a multiple of --brokers. 1 MB is 1,000,000 bytes. The disk is that of all replicas
    with 20 % to spare. The network is that of all brokers together."""
    need = Need(
        target_mb_s=target_mb_s,
        record_bytes=record_bytes,
        partition_mb_s=partition_mb_s,
        consumer_records_s=consumer_records_s,
        retention_s=None if retention is None else _seconds(retention),
        replication_factor=replication_factor,
        group_count=groups,
        broker_count=brokers,
        stored_ratio=stored_ratio,
    )
    result = size_of(need)
    if as_json:
        print_json({**asdict(need), **asdict(result)})
    else:
        print_sentences(*_size_sentences(result))


def _seconds(retention: str) -> float:
    duration_ms = parse_duration_ms(retention)
    if duration_ms is None:
        fail(f"--retention {retention!r}: expected a time such as 12h or 7d", ExitStatus.USAGE)
    return duration_ms / 1000


def _size_sentences(result: Size) -> list[str]:
    disk = [] if result.disk_bytes is None else [f"disk: {result.disk_bytes / (1000 * MB):,.1f} GB, with 20 % to spare"]
    return [
        f"{counted(result.partitions, 'partition')}: {result.partitions_for_producers} for the producers,"
        f" {result.partitions_for_consumers} for the consumers of {result.records_s:,.0f} records/s",
        *disk,
        f"network: {result.network_in_mb_s:,.1f} MB/s from producers, {result.network_replication_mb_s:,.1f} MB/s"
        f" between brokers, {result.network_out_mb_s:,.1f} MB/s to consumers",
    ]


@app.command(
    "delete",
    epilog=examples("klamm topics delete orders --dry-run", "klamm topics delete orders orders-clean --if-exists"),
)
def delete(
    names: Names,
    if_exists: IfExists = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Delete topics with their records."""
    with connected(bootstrap, timeout) as admin:
        if validate_only:
            _show_deletion(admin, list(_described(admin, names, if_exists=True)) if if_exists else names, as_json)
            return
        deleted = _delete_existing(admin, names) if if_exists else names
        if not if_exists:
            admin.delete_topics(names)
    lines = [f"deleted {', '.join(deleted)}"] if deleted else []
    print_change({"deleted": deleted}, *lines, as_json=as_json, validate_only=False)


def _show_deletion(admin: Admin, names: list[str], as_json: bool) -> None:
    """Prints the topics that a deletion would delete. Raises the error with which the controller would refuse it."""
    from klamm_cli.dry_run.topics import check_deletion, describe_contents

    contents = describe_contents(admin, check_deletion(admin, names).values())
    lines = [f"would delete topic {name}: {text}" for name, text in contents.items()]
    print_change({"deleted": names}, *lines, as_json=as_json, validate_only=True)


def _delete_existing(admin: Admin, names: list[str]) -> list[str]:
    """Deletes topics, and returns the names of those that existed. Deletes one topic per request, because another
    client may delete one of the topics at the same moment."""
    deleted = []
    for name in dict.fromkeys(names):
        try:
            admin.delete_topics([name])
            deleted.append(name)
        except _UnknownTopicError:
            print_message(f"there is no topic {name}")
    return deleted

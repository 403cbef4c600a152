"""`klamm topics`: create, list, describe, add partitions, elect leaders, delete."""

from __future__ import annotations

from typing import Annotated

import typer

from klamm.cli.assignments import parse_assignments
from klamm.cli.command import new_app
from klamm.cli.connect import connected
from klamm.cli.exit_status import ExitStatus
from klamm.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    fail,
    print_json,
    print_rows,
)

app = new_app("Create, list, describe, grow and delete topics; elect leaders.")

Names = Annotated[list[str], typer.Argument(help="One or more topics.")]
_FROM_CLUSTER = -1


@app.command("create")
def create(
    names: Names,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="-1 is the cluster's num.partitions.")
    ] = _FROM_CLUSTER,
    replication_factor: Annotated[
        int,
        typer.Option("--replication-factor", "-r", help="-1 is the cluster's default.replication.factor."),
    ] = _FROM_CLUSTER,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic config; repeatable."),
    ] = None,
    validate_only: Annotated[bool, typer.Option("--dry-run", help="Check everything, create nothing.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Creates topics."""
    from klamm import NewTopic

    configs = parse_assignments(config or [], "--config")
    topics = [NewTopic(name, partitions, replication_factor, configs=configs) for name in names]
    with connected(bootstrap, timeout) as admin:
        created = admin.create_topics(topics, validate_only=validate_only)
    rows = [(each.name, each.topic_id, each.partition_count, each.replication_factor) for each in created.values()]
    print_rows(("topic", "id", "partitions", "replication_factor"), rows, as_json=as_json, json_only={"id"})


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Klamm's own topics, too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Lists topics."""
    with connected(bootstrap, timeout) as admin:
        topics = admin.list_topics(include_internal=internal)
    rows = [
        (topic.name, len(topic.partitions), len(topic.partitions[0].replicas)) for _, topic in sorted(topics.items())
    ]
    print_rows(("topic", "partitions", "replication_factor"), rows, as_json=as_json)


@app.command("describe")
def describe(
    names: Annotated[list[str] | None, typer.Argument(help="Topics; none: every one.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only those with a replica that is not in sync.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable-partitions", help="Only those without a leader.")] = False,
    refusing: Annotated[
        bool, typer.Option("--refusing-partitions", help="Only those that take no records with acks=all.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Shows each partition's leader, replicas and offsets.

    ELR are replicas out of sync that have every acknowledged record, LAST KNOWN ELR is who led last where nobody is,
    ADDING and REMOVING what a reassignment does, OFFLINE what cannot be reached, RESIGNED what is not to lead for a
    full disk or a damaged log, REFUSES why no records are taken with acks=all; the table shows those columns when there
    is something in them."""
    from klamm import TopicPartition
    from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    with connected(bootstrap, timeout) as admin:
        topics = admin.describe_topics(names) if names else admin.list_topics(include_internal=True)
        shown = [
            (TopicPartition(name, each.partition), each)
            for name, topic in sorted(topics.items())
            for each in topic.partitions
            if not (under_replicated and not each.is_under_replicated)
            and not (unavailable and each.leader >= 0)
            and not (refusing and not each.refusal)
        ]
        # A partition without a leader cannot say its offsets; it is shown without them.
        led = [tp for tp, each in shown if each.leader >= 0]
        starts = admin.list_offsets(dict.fromkeys(led, EARLIEST_TIMESTAMP))
        ends = admin.list_offsets(dict.fromkeys(led, LATEST_TIMESTAMP))
    rows = []
    for tp, each in shown:
        start, end = starts.get(tp), ends.get(tp)
        offsets = (start and start.offset, end and end.offset)
        special = (each.elr, each.last_known_elr, each.adding_replicas, each.removing_replicas, each.offline_replicas)
        refusal = (each.resigned_replicas, each.refusal)
        rows.append((*tp, each.leader, each.leader_epoch, each.replicas, each.isr, *special, *refusal, *offsets))
    columns = (
        *("topic", "partition", "leader", "leader_epoch", "replicas", "isr"),
        *("elr", "last_known_elr", "adding", "removing", "offline", "resigned", "refuses"),
        *("start_offset", "end_offset"),
    )
    empty = {column for index, column in enumerate(columns) if all(row[index] in ((), "") for row in rows)}
    print_rows(columns, rows, as_json=as_json, json_only={"leader_epoch", *empty} - {"replicas", "isr"})


@app.command("elect-leaders")
def elect_leaders(
    names: Annotated[list[str] | None, typer.Argument(help="Topics; with --partition just one.")] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", help="Only this partition of the topic; repeatable.")
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="For partitions without a leader: elect any replica, even if acknowledged records are lost.",
        ),
    ] = False,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Every partition of the cluster.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Gives partitions back to their preferred leaders, the first of their replicas (Kafka's kafka-leader-election).

    Shows the partitions for which a leader was elected, or could not be; those that need no election are left out."""
    from klamm.admin import ElectionType
    from klamm.errors import EXCEPTIONS, ErrorCode
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
        results = admin.elect_leaders(kind, wanted)
    not_needed = EXCEPTIONS[ErrorCode.ELECTION_NOT_NEEDED]
    rows = [
        (*tp, "elected" if error is None else str(error))
        for tp, error in sorted(results.items())
        if not isinstance(error, not_needed)
    ]
    print_rows(("topic", "partition", "result"), rows, as_json=as_json)
    if any(result != "elected" for _, _, result in rows):
        raise typer.Exit(int(ExitStatus.FAILED))


@app.command("add-partitions")
def add_partitions(
    name: Annotated[str, typer.Argument(help="The topic.")],
    total: Annotated[int, typer.Argument(help="How many partitions it has afterwards.")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Adds partitions. Keys may go to other partitions from then on."""
    with connected(bootstrap, timeout) as admin:
        admin.create_partitions({name: total})
    if as_json:
        print_json({"topic": name, "partitions": total})
    else:
        typer.echo(f"{name} has {total} partitions")


@app.command("delete")
def delete(
    names: Names, as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT
) -> None:
    """Deletes topics with their records."""
    with connected(bootstrap, timeout) as admin:
        admin.delete_topics(names)
    if as_json:
        print_json({"deleted": names})
    else:
        typer.echo(f"deleted {', '.join(names)}")

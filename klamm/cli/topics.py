"""`klamm topics`: create, list, describe, add partitions, delete."""

from __future__ import annotations

from typing import Annotated

import typer

from klamm.cli.connect import connected
from klamm.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    parse_assignments,
    print_json,
    print_rows,
)

app = typer.Typer(help="Create, list, describe, grow and delete topics.", no_args_is_help=True)

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
    names: Names, as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT
) -> None:
    """Shows each partition's leader, replicas and offsets."""
    from klamm import TopicPartition
    from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    with connected(bootstrap, timeout) as admin:
        topics = admin.describe_topics(names)
        # A partition without a leader cannot say its offsets; it is shown without them.
        led = [
            TopicPartition(topic.name, each.partition)
            for topic in topics.values()
            for each in topic.partitions
            if each.leader >= 0
        ]
        starts = admin.list_offsets(dict.fromkeys(led, EARLIEST_TIMESTAMP))
        ends = admin.list_offsets(dict.fromkeys(led, LATEST_TIMESTAMP))
    rows = []
    for topic in topics.values():
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition)
            start, end = starts.get(tp), ends.get(tp)
            offsets = (start and start.offset, end and end.offset)
            rows.append((*tp, each.leader, each.leader_epoch, each.replicas, each.isr, *offsets))
    columns = ("topic", "partition", "leader", "leader_epoch", "replicas", "isr", "start_offset", "end_offset")
    print_rows(columns, rows, as_json=as_json, json_only={"leader_epoch"})


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

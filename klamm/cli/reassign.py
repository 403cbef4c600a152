"""`klamm reassign`: where partitions are, and moving them (Kafka's `kafka-reassign-partitions`, KIP-455)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from klamm.cli.connect import connected
from klamm.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    ExitStatus,
    Json,
    Timeout,
    fail,
    print_json,
    print_rows,
    say,
)
from klamm.model import TopicPartition

app = typer.Typer(help="Move partitions to other brokers, or give them more or fewer replicas.", no_args_is_help=True)

_VERSION = 1

PlanFile = Annotated[str, typer.Argument(metavar="FILE", help="A plan as generate prints it; - is the standard input.")]


@app.command("generate")
def generate(
    names: Annotated[list[str], typer.Argument(help="One or more topics.")],
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="IDS", help="Where they shall be, e.g. 1,2,3; without: anywhere.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="How many replicas; without: as now.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Prints a plan that moves as little as possible: balanced, over as many racks as there are."""
    from klamm.admin.placement_plan import plan_reassignment

    with connected(bootstrap, timeout) as admin:
        cluster = admin.describe_cluster()
        topics = admin.list_topics(include_internal=True)
        admin.describe_topics(names)  # Refuses what does not exist.
        racks = {each.node_id: each.rack for each in cluster.brokers}
        allowed = set(racks) if brokers is None else _ids(brokers, racks)
        current = {
            TopicPartition(name, each.partition): each.target_replicas
            for name, topic in topics.items()
            for each in topic.partitions
        }
        plan = plan_reassignment(
            current,
            racks,
            targets=[each.node_id for each in cluster.brokers if each.node_id in allowed and not each.fenced],
            stay=allowed,
            replication_factor=replication_factor,
            moving=[tp for tp in current if tp.topic in names],
        )
    _print_plan(plan)


@app.command("execute")
def execute(file: PlanFile, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """Begins to move partitions as a plan says, and prints the plan that would move them back."""
    plan = _read_plan(file)
    with connected(bootstrap, timeout) as admin:
        described = admin.describe_topics({tp.topic for tp in plan})
        before = {
            TopicPartition(name, each.partition): tuple(i for i in each.replicas if i not in each.adding_replicas)
            for name, topic in described.items()
            for each in topic.partitions
        }
        admin.alter_partition_reassignments(plan)
    say(f"{len(plan)} partitions are being moved: klamm reassign list shows them until they are")
    _print_plan({tp: before[tp] for tp in plan})


@app.command("list")
def list_(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """Lists the partitions that are being moved, and how far they are: a new replica has to get into the ISR."""
    with connected(bootstrap, timeout) as admin:
        ongoing = admin.list_partition_reassignments()
    rows = [
        (*tp, each.replicas, each.adding_replicas, each.removing_replicas, each.isr)
        for tp, each in sorted(ongoing.items())
    ]
    print_rows(("topic", "partition", "replicas", "adding", "removing", "isr"), rows, as_json=as_json)


@app.command("cancel")
def cancel(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="The plan to cancel; - is the standard input.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every reassignment under way.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Leaves partitions where they were."""
    if (file is None) != everything:
        fail("expected a FILE, or --all", ExitStatus.USAGE)
    with connected(bootstrap, timeout) as admin:
        partitions = admin.list_partition_reassignments() if file is None else _read_plan(file)
        admin.alter_partition_reassignments(dict.fromkeys(partitions))
    say(f"{len(partitions)} reassignments cancelled")


def _ids(text: str, known: dict[int, str]) -> set[int]:
    try:
        ids = {int(each) for each in text.split(",")}
    except ValueError:
        fail(f"--brokers {text!r}: expected ids with commas between them", ExitStatus.USAGE)
    if unknown := sorted(ids - known.keys()):
        fail(f"--brokers {text!r}: broker {unknown[0]} is not registered, those are {sorted(known)}")
    return ids


def _print_plan(plan: dict[TopicPartition, tuple[int, ...]]) -> None:
    """In the format of Kafka's tool."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in sorted(plan.items())
    ]
    print_json({"version": _VERSION, "partitions": partitions})


def _read_plan(file: str) -> dict[TopicPartition, tuple[int, ...]]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        document: Any = json.loads(text)
        if document["version"] != _VERSION:
            fail(f"{file}: version {document['version']!r}, expected {_VERSION}", ExitStatus.USAGE)
        plan = {
            TopicPartition(str(each["topic"]), int(each["partition"])): tuple(map(int, each["replicas"]))
            for each in document["partitions"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"{file}: expected a plan as klamm reassign generate prints it: {error!r}", ExitStatus.USAGE)
    if len(plan) != len(document["partitions"]):
        fail(f"{file}: a partition is named twice", ExitStatus.USAGE)
    return plan

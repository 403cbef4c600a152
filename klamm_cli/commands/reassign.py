"""`klamm reassign`: plans, starts, shows and cancels moves of partitions (Kafka's `kafka-reassign-partitions`,
KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from klamm.errors import raise_first
from klamm.model import TopicPartition
from klamm_cli.commands.moving import partitions_of, unthrottle, wait_until_moved
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
from klamm_cli.dry_run.reassignments import cancellation_errors, reassignment_errors
from klamm_cli.status.copies import Replicas, current_replicas
from klamm_cli.text.amounts import counted
from klamm_cli.text.reassignment_plan import plan_document, read_plan

if TYPE_CHECKING:
    from klamm.admin import PartitionDescription

app = new_app("Move partitions to other brokers; change replication factors.")

Wait = Annotated[bool, typer.Option("--wait", help="Wait until the partitions are moved.")]
PlanFile = Annotated[
    str, typer.Argument(metavar="FILE", help="The plan, as `klamm reassign generate` prints it; - is standard input.")
]


@app.command(
    "generate",
    epilog=examples(
        "klamm reassign generate orders --brokers 1,2,3 -r 3 > plan.json",
        "klamm reassign execute plan.json --throttle 50000000",
        "klamm reassign verify plan.json",
    ),
)
def generate(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="One or more topics.", show_default=False)],
    brokers: Annotated[
        str | None,
        typer.Option(
            "--brokers", metavar="IDS", help="The ids of the brokers to use, separated by commas [default: all]."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", metavar="NUMBER", min=1, help="The number of replicas [default: unchanged]."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Print a plan that moves partitions.

    The plan balances the partitions over brokers and racks, and moves as few as possible."""
    from klamm.admin.placement_plan import plan_reassignment

    with connected(bootstrap, timeout) as admin:
        cluster = admin.describe_cluster()
        topics = admin.list_topics(include_internal=True)
        admin.describe_topics(names)  # Raises if a topic does not exist.
        racks = {broker.node_id: broker.rack for broker in cluster.brokers}
        allowed = set(racks) if brokers is None else _ids(brokers, racks)
        current = {
            TopicPartition(name, partition.partition): partition.target_replicas
            for name, topic in topics.items()
            for partition in topic.partitions
        }
        plan = plan_reassignment(
            current,
            racks,
            targets=[broker.node_id for broker in cluster.brokers if broker.node_id in allowed and not broker.fenced],
            stay=allowed,
            replication_factor=replication_factor,
            moving=[tp for tp in current if tp.topic in names],
        )
    print_json(plan_document(plan))


@app.command(
    "execute",
    epilog=examples(
        "klamm reassign execute plan.json --dry-run", "klamm reassign execute plan.json --throttle 10000000"
    ),
)
def execute(
    file: PlanFile,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle",
            metavar="BYTES",
            min=1,
            help="Copy at most this many bytes per second from each broker and to each broker. Run the"
            " command again to change it.",
        ),
    ] = None,
    wait: Wait = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Start to move partitions according to a plan.

    The command prints the plan that moves them back. A throttle stays until `klamm reassign verify` finds that all
    moves are done, or until `klamm reassign cancel` removes it. --wait shows the progress. After Ctrl-C, the moves
    continue."""
    from klamm.admin.replication_throttle import throttle_changes

    plan = read_plan(file)
    with connected(bootstrap, timeout) as admin:
        before = {
            tp: tuple(i for i in partition.replicas if i not in partition.adding_replicas)
            for tp, partition in partitions_of(admin, plan).items()
        }
        _refuse_unknown(plan, before)
        if throttle is not None:
            brokers = [broker.node_id for broker in admin.describe_cluster().brokers]
            changes = throttle_changes(before, plan, brokers=brokers, bytes_per_second=throttle)
            admin.incremental_alter_configs(changes, validate_only=validate_only)
        if validate_only:
            raise_first(
                list(reassignment_errors(plan, {broker.node_id for broker in admin.describe_cluster().brokers}))
            )
        else:
            admin.alter_partition_reassignments(plan)
    back = plan_document({tp: before[tp] for tp in plan})
    if as_json:
        print_change({**back, "throttle": throttle}, as_json=True, validate_only=validate_only)
    elif validate_only:
        print_sentences(
            *(f"would move {tp} from {_ids_text(before[tp])} to {_ids_text(plan[tp])}" for tp in sorted(plan))
        )
    else:
        if throttle is not None:
            print_message(f"at most {throttle} bytes per second: klamm reassign verify removes that when all are moved")
        print_message(f"began to move {counted(len(plan), 'partition')}: klamm reassign verify shows the progress")
        print_json(back)
    if wait and not validate_only:
        with connected(bootstrap, timeout) as admin:
            wait_until_moved(admin, plan)


PreserveThrottles = Annotated[bool, typer.Option("--preserve-throttles", help="Keep the throttles.")]


@app.command("verify", epilog=examples("klamm reassign verify plan.json"))
def verify(
    file: PlanFile,
    wait: Wait = False,
    preserve_throttles: PreserveThrottles = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show a plan's progress; remove its throttles when all is moved.

    COPIED is the progress, in percent, of the replica that is furthest behind. Exit status: 1 if a partition is
    neither where the plan puts it nor on its way."""
    plan = read_plan(file)
    with connected(bootstrap, timeout) as admin:
        partitions = partitions_of(admin, plan)
        _refuse_unknown(plan, partitions)
        if wait:
            wait_until_moved(admin, plan)
            partitions = partitions_of(admin, plan)
        ongoing = admin.list_partition_reassignments()
        replicas = current_replicas(admin.describe_log_dirs() if ongoing else {})
        rows = [
            (*tp, _state(partitions[tp], wanted), partitions[tp].target_replicas, _copied(tp, partitions[tp], replicas))
            for tp, wanted in sorted(plan.items())
        ]
        if not ongoing and not preserve_throttles:
            unthrottle(admin, {tp.topic for tp in plan})
    print_rows(("topic", "partition", "state", "replicas", "copied"), rows, as_json=as_json)
    if any(row[2] == _ELSEWHERE for row in rows):
        raise typer.Exit(int(ExitStatus.FAILED))


@app.command("list", epilog=examples("klamm reassign list"))
def list_(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """List the partitions that are being moved.

    A move is complete when the new replicas are in sync."""
    with connected(bootstrap, timeout) as admin:
        ongoing = admin.list_partition_reassignments()
    rows = [
        (*tp, reassignment.replicas, reassignment.adding_replicas, reassignment.removing_replicas, reassignment.isr)
        for tp, reassignment in sorted(ongoing.items())
    ]
    print_rows(("topic", "partition", "replicas", "adding", "removing", "isr"), rows, as_json=as_json)


@app.command("cancel", epilog=examples("klamm reassign cancel plan.json", "klamm reassign cancel --all"))
def cancel(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The plan to cancel; - is standard input.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Cancel all reassignments in progress.")] = False,
    preserve_throttles: PreserveThrottles = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Cancel moves; leave the partitions where they were.

    The command removes the throttles unless other partitions are being moved."""
    if (file is None) != everything:
        fail("expected a FILE, or --all", ExitStatus.USAGE)
    with connected(bootstrap, timeout) as admin:
        partitions = list(admin.list_partition_reassignments() if file is None else read_plan(file))
        if validate_only:
            raise_first(list(cancellation_errors(partitions, partitions_of(admin, partitions))))
        else:
            admin.alter_partition_reassignments(dict.fromkeys(partitions))
            if not preserve_throttles and not admin.list_partition_reassignments():
                unthrottle(admin, {tp.topic for tp in partitions})
    line = f"{tense(validate_only, 'cancelled', 'cancel')} {counted(len(partitions), 'reassignment')}"
    document = {"cancelled": [str(tp) for tp in partitions]}
    print_change(document, line, as_json=as_json, validate_only=validate_only)


_COMPLETE, _MOVING, _ELSEWHERE = "complete", "moving", "not as planned"


def _refuse_unknown(plan: Iterable[TopicPartition], known: Iterable[TopicPartition]) -> None:
    if unknown := sorted(set(plan).difference(known)):
        tp = unknown[0]
        fail(f"the plan has partition {tp.partition} of {tp.topic}, which does not exist")


def _state(partition: PartitionDescription, wanted: tuple[int, ...]) -> str:
    if partition.target_replicas != wanted:
        return _ELSEWHERE
    return _MOVING if partition.adding_replicas or partition.removing_replicas else _COMPLETE


def _copied(tp: TopicPartition, partition: PartitionDescription, replicas: Replicas) -> int | None:
    """Returns the progress of the replica that has copied least, in percent. Returns None if `replicas` lacks the
    leader's replica."""
    if not partition.adding_replicas:
        return 100
    leader = replicas.get((partition.leader, tp))
    if leader is None:
        return None
    start, total = leader.log_start_offset, leader.log_end_offset - leader.log_start_offset
    added = (replicas.get((adding_replica, tp)) for adding_replica in partition.adding_replicas)
    least = min(0 if replica is None else replica.log_end_offset for replica in added)
    return 100 * max(0, min(least - start, total)) // total if total else 100


def _ids_text(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def _ids(text: str, known: dict[int, str]) -> set[int]:
    try:
        ids = {int(broker_id) for broker_id in text.split(",")}
    except ValueError:
        fail(f"--brokers {text!r}: expected ids with commas between them", ExitStatus.USAGE)
    if unknown := sorted(ids - known.keys()):
        fail(f"--brokers {text!r}: broker {unknown[0]} is not registered, those are {sorted(known)}")
    return ids

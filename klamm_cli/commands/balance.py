"""`klamm cluster balance`: moves leaders and replicas so that brokers have equal load.

The command keeps no state. It moves some partitions at a time, by the reassignments of the controller (KIP-455). A run
that was stopped or interrupted is continued by another one, which plans from what is there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm.model import TopicPartition
from klamm_cli.commands.moving import unthrottle, wait_until_moved
from klamm_cli.console.change import DryRun, print_change, tense
from klamm_cli.console.confirm import confirm
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    fail,
    print_lines,
    print_message,
    print_rows,
    print_sentences,
)
from klamm_cli.text.amounts import counted

if TYPE_CHECKING:
    from klamm import Admin
    from klamm_cli.balance.plan import BalancePlan

_AT_ONCE: Final = 20
"""The number of partitions that move at the same time, so that a stop leaves few unfinished copies."""
_MEASURE_S: Final = 10.0
_THROTTLE: Final = 50_000_000
_EVERY_S: Final = 600.0

Placement = Mapping[TopicPartition, tuple[int, ...]]


def balance(
    stop: Annotated[bool, typer.Option("--stop", help="Cancel the moves in progress, and end their throttle.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Balance again and again, until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=1, help="With --watch, the time between two runs.")
    ] = _EVERY_S,
    measure_s: Annotated[
        float, typer.Option("--measure", metavar="SECONDS", min=0.1, help="Measure the load for this time.")
    ] = _MEASURE_S,
    throttle: Annotated[
        int,
        typer.Option(
            "--throttle",
            metavar="BYTES",
            min=1,
            help="Copy at most this many bytes per second from and to each broker.",
        ),
    ] = _THROTTLE,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", metavar="PERCENT", min=1, max=100, help="Accept this difference of a broker from the mean."
        ),
    ] = 10.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the moves begin.")] = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Move leaders and replicas to spread the load.

    The load is the bytes that a broker appends and sends per second, and the bytes that it stores. The command measures
    it, shows a plan, asks, and moves 20 partitions at a time. Replicas on one host move to others first. You can
    interrupt the command and start it again. The moves in progress continue, unless --stop cancels them."""
    if stop and (watch or yes):
        fail("--stop excludes --watch and --yes", ExitStatus.USAGE)
    if watch and validate_only:
        fail("--watch and --dry-run exclude each other", ExitStatus.USAGE)
    with connected(bootstrap, timeout) as admin:
        if stop:
            _stop(admin, as_json=as_json, validate_only=validate_only)
            return
        while True:
            _balance_once(
                admin,
                measure_s=measure_s,
                throttle=throttle,
                tolerance=tolerance / 100,
                is_confirmed=yes,
                validate_only=validate_only,
                as_json=as_json,
            )
            if not watch:
                return
            yes = True
            time.sleep(every)


def _balance_once(
    admin: Admin,
    *,
    measure_s: float,
    throttle: int,
    tolerance: float,
    is_confirmed: bool,
    validate_only: bool,
    as_json: bool,
) -> None:
    from klamm_cli.balance import screen
    from klamm_cli.balance.measure import measure
    from klamm_cli.balance.plan import plan_balance

    if not validate_only:
        _finish_earlier(admin)
    cluster = measure(admin, measure_s)
    plan = plan_balance(cluster.partitions, cluster.racks, targets=cluster.targets, tolerance=tolerance)
    if as_json:
        print_change(screen.document(cluster, plan), as_json=True, validate_only=validate_only)
    else:
        if plan.moves:
            print_lines(*screen.moves(cluster, plan))
        print_rows(screen.COLUMNS, screen.rows(cluster, plan), as_json=False)
        print_sentences(screen.headline(cluster, plan))
    if validate_only or not plan.moves:
        return
    if not is_confirmed:
        confirm("Begin?", without_terminal="the plan was only shown: add --yes to begin, or --dry-run")
    _execute(admin, {tp: partition.replicas for tp, partition in cluster.partitions.items()}, plan, throttle)
    print_message(f"moved {counted(len(plan.moves), 'partition')}")


def _execute(admin: Admin, before: Placement, plan: BalancePlan, throttle: int) -> None:
    """Moves the partitions in groups, and elects their preferred leaders."""
    from klamm.admin.replication_throttle import throttle_changes

    brokers = [broker.node_id for broker in admin.describe_cluster().brokers]
    # Partitions that only get another leader copy nothing, so their load is equal first.
    ordered = sorted(plan.moves, key=lambda tp: (set(plan.moves[tp]) != set(before[tp]), tp))
    for start in range(0, len(ordered), _AT_ONCE):
        moving = {tp: plan.moves[tp] for tp in ordered[start : start + _AT_ONCE]}
        admin.incremental_alter_configs(throttle_changes(before, moving, brokers=brokers, bytes_per_second=throttle))
        admin.alter_partition_reassignments(moving)
        wait_until_moved(admin, moving)
        _check_moved(admin, moving)
        _elect(admin, moving)
        unthrottle(admin, {tp.topic for tp in moving})


def _check_moved(admin: Admin, moving: Placement) -> None:
    """Raises KlammError if someone has cancelled or changed a move."""
    topics = admin.describe_topics({tp.topic for tp in moving})
    for tp, wanted in moving.items():
        now = next(
            partition for partition in topics[tp.topic].partitions if partition.partition == tp.partition
        ).target_replicas
        if tuple(now) != wanted:
            raise KlammError(
                f"stopped: partition {tp} is on {list(now)}, expected {list(wanted)}; to continue, run klamm cluster"
                " balance again"
            )


def _elect(admin: Admin, moved: Placement) -> None:
    """Makes the first replicas leaders. The controller does this later for a replica that cannot lead now."""
    from klamm.admin import ElectionType

    harmless = (
        EXCEPTIONS[ErrorCode.ELECTION_NOT_NEEDED],
        EXCEPTIONS[ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE],
    )
    for error in admin.elect_leaders(ElectionType.PREFERRED, moved).values():
        if error is not None and not isinstance(error, harmless):
            raise error


def _finish_earlier(admin: Admin) -> None:
    """Waits for the moves that are in progress, and ends the throttles that an interrupted run has left."""
    ongoing = admin.list_partition_reassignments()
    if ongoing:
        print_message(f"waits until {counted(len(ongoing), 'partition')} in progress are moved")
        wait_until_moved(admin, ongoing)
        _elect(admin, {tp: reassignment.replicas for tp, reassignment in ongoing.items()})
    unthrottle(admin, _throttled(admin))


def _stop(admin: Admin, *, as_json: bool, validate_only: bool) -> None:
    ongoing = sorted(admin.list_partition_reassignments())
    if not validate_only:
        if ongoing:
            admin.alter_partition_reassignments(dict.fromkeys(ongoing))
        unthrottle(admin, _throttled(admin))
    line = f"{tense(validate_only, 'cancelled', 'cancel')} {counted(len(ongoing), 'move')}"
    print_change({"cancelled": [str(tp) for tp in ongoing]}, line, as_json=as_json, validate_only=validate_only)


def _throttled(admin: Admin) -> set[str]:
    """Returns the topics with throttled replicas."""
    from klamm.admin import ConfigResource, ConfigResourceType
    from klamm.admin.replication_throttle import FOLLOWERS

    topics = [ConfigResource(ConfigResourceType.TOPIC, name) for name in admin.list_topics(include_internal=True)]
    described = admin.describe_configs(topics, names=[FOLLOWERS])
    return {topic.name for topic, entries in described.items() if FOLLOWERS in entries and entries[FOLLOWERS].value}

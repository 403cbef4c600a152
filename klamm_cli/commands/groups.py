"""`klamm groups`: lists, describes (with lag) and deletes consumer groups, resets and deletes their offsets, forgets
what they lost, and removes members."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.admin.types.groups import PartitionLagDescription
from klamm.errors import raise_first
from klamm.model import TopicPartition
from klamm_cli.commands.group_why import why
from klamm_cli.console.change import DryRun, print_change, tense
from klamm_cli.console.command import examples, new_app
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
    print_json,
    print_message,
    print_rows,
)
from klamm_cli.dry_run.groups import deletion_errors, offset_deletion_errors, removal_errors, reset_errors
from klamm_cli.status.group_lag import in_words
from klamm_cli.text.amounts import counted, duration, record_count
from klamm_cli.text.positions import POSITION_HELP, offsets_at, parse_position

_STATES: Final = {
    name.lower(): name
    for name in ("Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Dead")
}
_TYPES: Final = ("classic", "consumer")

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import GroupDescription

app = new_app("List, describe, reset and delete consumer groups.")

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC[:NUMBER]", help="A topic, or one partition of it; repeatable."),
]


@app.command("list", epilog=examples("klamm groups list", "klamm groups list --state empty"))
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="List only groups in this state; repeatable.")
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="List only groups of this type, classic or consumer; repeatable."),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """List groups with their types and states."""
    if unknown := [name for name in type_ or () if name.lower() not in _TYPES]:
        fail(f"there is no type {', '.join(unknown)}; expected {', '.join(_TYPES)}", ExitStatus.USAGE)
    if unknown := [name for name in state or () if name.lower() not in _STATES]:
        fail(f"there is no state {', '.join(unknown)}; expected {', '.join(_STATES.values())}", ExitStatus.USAGE)
    with connected(bootstrap, timeout) as admin:
        groups = admin.list_groups(states=state or (), types=type_ or ())
    rows = [(group.group_id, group.type, group.state, group.protocol_type) for _, group in sorted(groups.items())]
    print_rows(("group", "type", "state", "protocol_type"), rows, as_json=as_json)


@app.command("describe", epilog=examples("klamm groups describe billing", "klamm groups describe billing --members"))
def describe(
    group: Group,
    members: Annotated[
        bool, typer.Option("--members", help="Show the members and their partitions instead of offsets.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show a group's offsets, lag and owners by partition.

    The command shows all partitions of the topics in which the group has members or offsets. In one without a
    committed offset, a member begins where its auto.offset.reset says. LAG is how many records the group has still to
    read. BEHIND is the age of the next one. LOST is how many records were deleted (by retention, for example) before
    the group read them, since the group began or since `klamm groups forget-lost`. Kafka's kafka-consumer-groups shows
    LAG by offsets, with what is lost and with the markers of transactions."""
    with connected(bootstrap, timeout) as admin:
        description = admin.describe_groups([group])[group]
        if members:
            _print_members(description, as_json)
            return
        lag = admin.describe_group_lag([group])[group]
    owners = {tp: member.client_id for member in description.members for tp in member.assignment}
    by_tp = {partition.tp: partition for partition in lag.partitions}
    by_tp |= {tp: PartitionLagDescription(tp=tp) for tp in owners.keys() - by_tp.keys()}
    shown = [by_tp[tp] for tp in sorted(by_tp)]
    if as_json:
        print_json(
            {
                "group": group,
                "type": description.type,
                "state": description.state,
                **_progress(description),
                "assignor": description.assignor,
                "members": len(description.members),
                "partitions": [_lag_document(partition, owners.get(partition.tp)) for partition in shown],
            }
        )
        return
    progress = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in _progress(description).items())
    by = f", assigned by {description.assignor}" if description.assignor else ""
    print_message(f"group {group}: {description.type}, {description.state}, {progress}{by}; {in_words(lag)}")
    columns = ("topic", "partition", "committed", "end_offset", "lag", "behind", "lost", "owner")
    print_rows(columns, [_lag_row(partition, owners.get(partition.tp)) for partition in shown], as_json=False)


def _lag_row(partition: PartitionLagDescription, owner: str | None) -> tuple[str | int | None, ...]:
    behind = None if partition.behind_ms is None else duration(partition.behind_ms) if partition.lag else "0"
    lost = None if partition.lag is None and not partition.lost_count else partition.lost_count
    return *partition.tp, partition.committed_offset, partition.high_watermark, partition.lag, behind, lost, owner


def _lag_document(partition: PartitionLagDescription, owner: str | None) -> dict[str, Any]:
    return {
        "topic": partition.tp.topic,
        "partition": partition.tp.partition,
        "committed": partition.committed_offset,
        "end_offset": partition.high_watermark,
        "lag": partition.lag,
        "behind_ms": partition.behind_ms,
        "lost": partition.lost_count,
        "owner": owner,
        "error": partition.error,
        "unchanged_since_ms": partition.unchanged_since_ms,
        "next_deletion_ms": partition.next_deletion_ms,
        "catch_up_ms": partition.catch_up_ms,
        "commit_interval_ms": partition.commit_interval_ms,
        "consumed_per_s": partition.consumed_per_s,
        "produced_per_s": partition.produced_per_s,
        "held_by_producer_id": partition.held_by_producer_id,
        "held_since_ms": partition.held_since_ms,
    }


def _progress(description: GroupDescription) -> dict[str, int]:
    """Returns the generation of a classic group, or the group epoch and the assignment epoch of a consumer group
    (KIP-848)."""
    if description.type == "classic":
        return {"generation": description.generation_id}
    return {"group_epoch": description.group_epoch, "assignment_epoch": description.assignment_epoch}


def _print_members(description: GroupDescription, as_json: bool) -> None:
    columns: tuple[str, ...] = ("member", "instance", "client", "host", "assignment")
    if description.type == "consumer":
        columns += ("epoch", "target", "protocol")
    rows = [
        (
            *(member.member_id, member.group_instance_id, member.client_id, member.client_host),
            *(tuple(map(str, member.assignment)), member.epoch, tuple(map(str, member.target)), member.type),
        )[: len(columns)]
        for member in description.members
    ]
    print_rows(columns, rows, as_json=as_json)


app.command("why", epilog=examples("klamm groups why billing", "klamm groups why billing --json"))(why)


@app.command(
    "reset",
    epilog=examples(
        "klamm groups reset billing --to beginning --dry-run",
        "klamm groups reset billing --topic orders:2 --to 2026-01-31T12:00",
        "klamm groups reset billing --to -100 --all-topics",
    ),
)
def reset(
    group: Group,
    to: Annotated[
        str, typer.Option("--to", metavar="POSITION", help=f"Set the offsets to this position: {POSITION_HELP}")
    ],
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Set the offsets of all topics of the group without asking.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Set the committed offsets of a group that has no members.

    Without --topic, the command sets the offset of every partition for which the group has one. It asks before that,
    unless there is --all-topics or --dry-run. A position outside of the log becomes the start or the end of the log.
    SKIPPED is the number of offsets that the group will not read."""
    if topic and all_topics:
        fail("--topic and --all-topics exclude each other", ExitStatus.USAGE)
    position = parse_position(to, "--to", now_ms=time.time_ns() // 1_000_000)
    with connected(bootstrap, timeout) as admin:
        before = admin.list_group_offsets(group)
        tps = _partitions(admin, topic) if topic else sorted(before)
        if not tps:
            fail(f"group {group!r} has no offsets; name what to set with --topic", ExitStatus.USAGE)
        if not (topic or all_topics or dry_run):
            names = ", ".join(sorted({tp.topic for tp in tps}))
            confirm(
                f"Set the offsets of all topics of group {group!r} ({names})?",
                without_terminal=f"group {group!r} has offsets of {names}: name some of them with --topic, or add"
                " --all-topics",
            )
        after = offsets_at(
            position, tps, lambda asked: {tp: offset.offset for tp, offset in admin.list_offsets(asked).items()}
        )
        if dry_run:
            raise_first(list(reset_errors(admin, group)))
        else:
            admin.alter_group_offsets(group, after)
    rows = [_reset_row(tp, before[tp].offset if tp in before else None, after[tp]) for tp in tps]
    if dry_run and not as_json:
        print_message("dry run: nothing was stored")
    print_rows(("topic", "partition", "before", "after", "skipped"), rows, as_json=as_json)


def _reset_row(tp: TopicPartition, before: int | None, after: int) -> tuple[str, int, int | None, int, int | None]:
    """Returns a line of `reset`. The last value is the number of offsets that the group skips."""
    return *tp, before, after, None if before is None else max(0, after - before)


def _partitions(admin: Admin, wanted: list[str]) -> list[TopicPartition]:
    """Returns the partitions that `wanted` names: `topic` names all partitions of the topic, `topic:2` only partition
    2. Ends the command if a partition does not exist."""
    names = {spec.partition(":")[0] for spec in wanted}
    described = admin.describe_topics(sorted(names))
    tps: dict[TopicPartition, None] = {}
    for spec in wanted:
        name, colon, number = spec.partition(":")
        known = range(len(described[name].partitions))
        if colon and not (number.isdecimal() and int(number) in known):
            fail(f"--topic {spec}: {name} has partitions 0 to {len(known) - 1}", ExitStatus.USAGE)
        tps.update(dict.fromkeys(TopicPartition(name, partition) for partition in ([int(number)] if colon else known)))
    return list(tps)


@app.command("delete-offsets", epilog=examples("klamm groups delete-offsets billing --topic orders"))
def delete_offsets(
    group: Group,
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:NUMBER]", help="A topic, or one partition of it; repeatable."),
    ],
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Delete a group's offsets of topics.

    The group must not be subscribed to them."""
    with connected(bootstrap, timeout) as admin:
        tps = _partitions(admin, topic)
        if validate_only:
            raise_first(list(offset_deletion_errors(admin.describe_groups([group])[group], tps)))
        else:
            admin.delete_group_offsets(group, tps)
    line = f"{tense(validate_only, 'deleted', 'delete')} the offsets of {', '.join(map(str, tps))}"
    document = {"group": group, "deleted": [str(tp) for tp in tps]}
    print_change(document, line, as_json=as_json, validate_only=validate_only)


@app.command(
    "remove-members",
    epilog=examples(
        "klamm groups remove-members billing --instance billing-1", "klamm groups remove-members billing --all"
    ),
)
def remove_members(
    group: Group,
    instance: Annotated[
        list[str] | None,
        typer.Option("--instance", metavar="ID", help="Remove the member with this group.instance.id; repeatable."),
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Remove all members.")] = False,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Write this reason to the coordinator's log.")
    ] = "",
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Remove members from a group.

    A consumer that still runs joins again."""
    if bool(instance) == everybody:
        fail("name members with --instance, or all with --all", ExitStatus.USAGE)
    with connected(bootstrap, timeout) as admin:
        if validate_only:
            described = admin.describe_groups([group])[group]
            raise_first(list(removal_errors(described, instance or ())))
            everyone = f"all members ({len(described.members)})"
        else:
            admin.remove_group_members(group, None if everybody else instance, reason=reason)
            everyone = "all members"
    whom = everyone if everybody else ", ".join(instance or ())
    document = {"group": group, "removed": "all" if everybody else instance}
    line = f"{tense(validate_only, 'removed', 'remove')} {whom}"
    print_change(document, line, as_json=as_json, validate_only=validate_only)


@app.command(
    "forget-lost", epilog=examples("klamm groups forget-lost billing", "klamm groups forget-lost billing -t orders")
)
def forget_lost(
    group: Group,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only in this topic; repeatable.")
    ] = None,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Set the counts of the records that a group lost to 0.

    A group has lost the records that were deleted before it read them. They cannot be read any more. The command only
    ends the report of `klamm cluster status`."""
    with connected(bootstrap, timeout) as admin:
        if validate_only:
            lags = admin.describe_group_lag([group])[group].partitions
            count = sum(lag.lost_count for lag in lags if not topic or lag.tp.topic in topic)
        else:
            count = admin.forget_lost_records(group, topic or ())
    line = f"{tense(validate_only, 'forgot', 'forget')} that the group lost {record_count(count)}"
    document = {"group": group, "topics": topic or [], "lost": count}
    print_change(document, line, as_json=as_json, validate_only=validate_only)


@app.command("delete", epilog=examples("klamm groups delete billing"))
def delete(
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP", help="One or more groups without members.", show_default=False)
    ],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Skip groups that do not exist.")] = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Delete groups with their offsets."""
    with connected(bootstrap, timeout) as admin:
        if if_exists:
            there = admin.list_groups()
            for group in groups:
                if group not in there:
                    print_message(f"there is no group {group}")
            groups = [group for group in groups if group in there]
        lines = [f"deleted {', '.join(groups)}"] if groups else []
        if validate_only:
            raise_first(list(deletion_errors(admin.describe_groups(groups).values())))
            offsets = {group: counted(len(admin.list_group_offsets(group)), "partition") for group in groups}
            lines = [f"would delete group {group}: offsets of {count}" for group, count in offsets.items()]
        elif groups:
            admin.delete_groups(groups)
    print_change({"deleted": groups}, *lines, as_json=as_json, validate_only=validate_only)

"""`klamm groups`: list, describe with lag, reset and delete offsets, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from klamm.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ExitStatus,
    Json,
    fail,
    one_line_errors,
    print_json,
    print_rows,
)
from klamm.cli.times import parse_time_ms
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(help="The group.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="topic or topic:partition; repeatable.")]


@app.command("list")
def list_(
    state: Annotated[list[str] | None, typer.Option("--state", help="Only groups in this state; repeatable.")] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Lists groups."""
    from klamm import Admin

    with one_line_errors(bootstrap), Admin(bootstrap_servers=bootstrap) as admin:
        groups = admin.list_groups(states=state or ())
    rows = [(each.group_id, each.state, each.protocol_type) for _, each in sorted(groups.items())]
    print_rows(("group", "state", "protocol_type"), rows, as_json=as_json)


@app.command("describe")
def describe(
    group: Group,
    members: Annotated[bool, typer.Option("--members", help="Members and what they own, instead of lag.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Shows committed offsets and lag by partition, and who owns it."""
    from klamm import Admin

    with one_line_errors(bootstrap), Admin(bootstrap_servers=bootstrap) as admin:
        description = admin.describe_groups([group])[group]
        if members:
            _print_members(description, as_json)
            return
        owners = {tp: member.client_id for member in description.members for tp in member.assignment}
        committed = admin.list_group_offsets(group)
        tps = sorted(owners.keys() | committed.keys())
        ends = admin.list_offsets(dict.fromkeys(tps, LATEST_TIMESTAMP))
    if not as_json:
        typer.echo(f"group {group}: {description.state}, generation {description.generation_id}", err=True)
    rows = []
    for tp in tps:
        offset = committed[tp].offset if tp in committed else None
        end = ends[tp].offset
        rows.append((*tp, offset, end, None if offset is None else end - offset, owners.get(tp)))
    print_rows(("topic", "partition", "committed", "end_offset", "lag", "owner"), rows, as_json=as_json)


def _print_members(description: Any, as_json: bool) -> None:
    rows = [
        (each.member_id, each.group_instance_id, each.client_id, each.client_host, tuple(map(str, each.assignment)))
        for each in description.members
    ]
    print_rows(("member", "instance", "client", "host", "assignment"), rows, as_json=as_json)


@app.command("reset")
def reset(
    group: Group,
    to: Annotated[str, typer.Option("--to", help="earliest, latest, an offset, a time or an age (15m).")],
    topic: Topics = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the new offsets, store nothing.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Sets the committed offsets of a group that has no members.

    Without --topic, of every partition it has an offset for. Offsets are kept within what the partition holds."""
    from klamm import Admin

    with one_line_errors(bootstrap), Admin(bootstrap_servers=bootstrap) as admin:
        before = admin.list_group_offsets(group)
        tps = _partitions(admin, topic) if topic else sorted(before)
        if not tps:
            fail(f"group {group!r} has no offsets; name what to set with --topic", ExitStatus.USAGE)
        after = _targets(admin, tps, to)
        if not dry_run:
            admin.alter_group_offsets(group, after)
    rows = [(*tp, before[tp].offset if tp in before else None, after[tp]) for tp in tps]
    if dry_run and not as_json:
        typer.echo("dry run: nothing was stored", err=True)
    print_rows(("topic", "partition", "before", "after"), rows, as_json=as_json)


def _targets(admin: Any, tps: list[TopicPartition], to: str) -> dict[TopicPartition, int]:
    starts = admin.list_offsets(dict.fromkeys(tps, EARLIEST_TIMESTAMP))
    ends = admin.list_offsets(dict.fromkeys(tps, LATEST_TIMESTAMP))
    if to == "earliest":
        return {tp: starts[tp].offset for tp in tps}
    if to == "latest":
        return {tp: ends[tp].offset for tp in tps}
    if to.isdecimal():
        return {tp: min(max(int(to), starts[tp].offset), ends[tp].offset) for tp in tps}
    found = admin.list_offsets(dict.fromkeys(tps, parse_time_ms(to)))
    # No record is that late: the next one will be.
    return {tp: found[tp].offset if found[tp].offset >= 0 else ends[tp].offset for tp in tps}


def _partitions(admin: Any, wanted: list[str]) -> list[TopicPartition]:
    """`topic` is all of its partitions, `topic:2` that one."""
    names = {each.partition(":")[0] for each in wanted}
    described = admin.describe_topics(sorted(names))
    tps: dict[TopicPartition, None] = {}
    for each in wanted:
        name, colon, number = each.partition(":")
        known = range(len(described[name].partitions))
        if colon and not (number.isdecimal() and int(number) in known):
            fail(f"--topic {each}: {name} has partitions 0 to {len(known) - 1}", ExitStatus.USAGE)
        tps.update(dict.fromkeys(TopicPartition(name, partition) for partition in ([int(number)] if colon else known)))
    return list(tps)


@app.command("delete-offsets")
def delete_offsets(
    group: Group,
    topic: Annotated[list[str], typer.Option("--topic", "-t", help="topic or topic:partition; repeatable.")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Forgets committed offsets of topics the group is not subscribed to."""
    from klamm import Admin

    with one_line_errors(bootstrap), Admin(bootstrap_servers=bootstrap) as admin:
        tps = _partitions(admin, topic)
        admin.delete_group_offsets(group, tps)
    if as_json:
        print_json({"group": group, "deleted": [str(tp) for tp in tps]})
    else:
        typer.echo(f"deleted the offsets of {', '.join(map(str, tps))}")


@app.command("delete")
def delete(
    groups: Annotated[list[str], typer.Argument(help="Groups without members.")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Deletes groups with their offsets."""
    from klamm import Admin

    with one_line_errors(bootstrap), Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_groups(groups)
    if as_json:
        print_json({"deleted": groups})
    else:
        typer.echo(f"deleted {', '.join(groups)}")

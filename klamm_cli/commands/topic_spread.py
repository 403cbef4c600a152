"""`klamm topics spread`: copies a topic into one with more partitions, and moves its groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_cli.console.change import DryRun, print_change
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    fail,
    print_message,
)
from klamm_cli.text.amounts import counted, record_count

if TYPE_CHECKING:
    from klamm_cli.spread.facts import Names, SpreadFacts
    from klamm_cli.spread.running import Group, Spreading


def spread(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The topic to copy.", show_default=False)],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The topic with more partitions.", show_default=False)
    ],
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", metavar="NUMBER", min=2, help="The number of partitions of TARGET.", show_default=False
        ),
    ],
    cut: Annotated[
        bool,
        typer.Option("--cut", help="The producers of SOURCE are stopped: copy the rest, and move the groups."),
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Move only the groups that are ready now, and list the others.")
    ] = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Copy a topic into one with more partitions, in order.

    The command copies each record once, and keeps the order of each key. After it was killed, a new run continues.
    Producers may write to SOURCE during the copy. After that, stop them and run the command with --cut. When the
    command prints that the cut is made, producers may write to TARGET. The command moves each group that has read all
    of SOURCE and has no members. Such a group reads in TARGET the records that were written after the cut."""
    from klamm_cli.spread.facts import Names

    if source == target:
        fail(f"TARGET {target}: expected another topic than SOURCE", ExitStatus.USAGE)
    names = Names(source, target)
    with connected(bootstrap, timeout) as admin:
        from klamm_cli.spread.running import Spreading

        spreading = Spreading(admin, bootstrap, names, partitions)
        if validate_only:
            _show_plan(spreading, as_json=as_json)
        else:
            _run(spreading, cut=cut, wait=not no_wait, as_json=as_json)


def _show_plan(spreading: Spreading, *, as_json: bool) -> None:
    from klamm_cli.spread.gather import STABLE_MS

    try:
        facts = spreading.look(stable_ms=STABLE_MS)
    except EXCEPTIONS[ErrorCode.UNSTABLE_OFFSET_COMMIT]:
        fail(
            f"a transaction of {spreading.names.group_id} is open, so nothing can be told: the command copies now, or"
            " was killed less than a minute ago"
        )
    groups = spreading.groups(facts)
    names, boundary = facts.names, facts.boundary
    lines = []
    if facts.target is None:
        lines.append(f"would create {names.target} with {counted(facts.partitions, 'partition')}")
    if not boundary:
        lines.append(f"would copy {record_count(facts.left)} of {names.source}")
    lines += _group_lines(names, groups)
    document = _document(facts, groups, 0)
    print_change(document, *lines, as_json=as_json, validate_only=True)


def _run(spreading: Spreading, *, cut: bool, wait: bool, as_json: bool) -> None:
    facts = spreading.prepare()
    names = facts.names
    if not facts.boundary:
        facts = spreading.copy(facts)
        if not cut:
            document = _document(facts, spreading.groups(facts), spreading.progress.records)
            print_change(document, *_next_lines(spreading, facts), as_json=as_json, validate_only=False)
            return
        facts = spreading.cut(facts)
        print_message(f"the cut is made: producers may write to {names.target} now, and no more to {names.source}")
    facts, groups = spreading.move_groups(print_message, wait=wait)
    document = _document(facts, groups, spreading.progress.records)
    print_change(document, *_last_lines(facts, groups, wait=wait), as_json=as_json, validate_only=False)
    if facts.late:
        fail(
            f"producers wrote {record_count(facts.late)} to {names.source} after the cut. These are not in"
            f" {names.target}: send them again, unless all groups have read them in {names.source}"
        )


def _next_lines(spreading: Spreading, facts: SpreadFacts) -> list[str]:
    names = facts.names
    return [
        f"copied {record_count(spreading.progress.records)}; {record_count(facts.left)} of {names.source} are left",
        f"next: stop the producers of {names.source}, and run this command again with --cut",
    ]


def _last_lines(facts: SpreadFacts, groups: list[Group], *, wait: bool) -> list[str]:
    from klamm_cli.spread.group_steps import is_waiting

    names = facts.names
    lines = [] if wait else _group_lines(names, groups)
    if any(is_waiting(group.step) for group in groups):
        return [*lines, "next: run this command again when these groups are ready"]
    return [
        *lines,
        f"all groups of {names.source} are moved",
        f"next: `klamm topics delete {names.source}` and `klamm groups delete {names.group_id}`, when nobody needs"
        f" {names.source} any more",
    ]


def _group_lines(names: Names, groups: list[Group]) -> list[str]:
    from klamm_cli.spread.group_steps import sentence

    return [sentence(group.facts, group.step, names.source, names.target) for group in groups]


def _document(facts: SpreadFacts, groups: list[Group], copied: int) -> dict[str, Any]:
    from klamm_cli.spread.plan import next_phase

    return {
        "source": facts.names.source,
        "target": facts.names.target,
        "partitions": facts.partitions,
        "phase": str(next_phase(facts)),
        "copied": copied,
        "left": facts.left,
        "late": facts.late if facts.boundary else 0,
        "boundary": [offset for _, offset in sorted(facts.boundary.items())],
        "groups": [
            {"group": group.facts.group_id, "step": str(group.step), "lag": group.facts.lag} for group in groups
        ],
    }

"""`klamm groups why`: finds out why a group is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.errors import GroupIdNotFoundError, KlammError
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    print_json,
    print_lines,
    print_rows,
    print_sentences,
)

if TYPE_CHECKING:
    from klamm import Admin
    from klamm_cli.why.facts import WhyFacts

ANSWER_MS: Final = 4_000
"""How long one question may take, so that a dead coordinator is reported soon."""


def why(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Find out why a group is behind, or why it lost records.

    The command looks at the members, their rates, rebalances, the records that are written, hot keys and open
    transactions. It changes nothing. The first lines name the cause, and the last ones what to do."""
    from klamm_cli.why.causes import causes
    from klamm_cli.why.report import (
        MEMBER_COLUMNS,
        PARTITION_COLUMNS,
        advice,
        document,
        lines,
        member_rows,
        partition_rows,
    )

    with connected(bootstrap, timeout) as admin:
        facts = _facts(admin, bootstrap, group, round(timeout * 1000), as_json=as_json)
    found = causes(facts)
    if as_json:
        print_json(document(facts, found))
        return
    print_sentences(*lines(facts, found))
    for columns, rows in ((PARTITION_COLUMNS, partition_rows(facts)), (MEMBER_COLUMNS, member_rows(facts))):
        if rows and found:
            print_lines("")
            print_rows(tuple(map(_titled, columns)), rows, as_json=False)
    if found:
        print_sentences("", *advice(found))


def _titled(column: str) -> str:
    return f"{column[:-2]}/s" if column.endswith("_s") else column


def _facts(admin: Admin, bootstrap: str, group: str, timeout_ms: int, *, as_json: bool) -> WhyFacts:
    from klamm_cli.why.gather import gather

    try:
        return gather(admin, bootstrap, group, timeout_ms=min(timeout_ms, ANSWER_MS))
    except GroupIdNotFoundError:
        raise
    except KlammError as error:
        _show_no_answer(admin, group, error, as_json=as_json)
        raise typer.Exit(ExitStatus.FAILED) from error


def _show_no_answer(admin: Admin, group: str, error: KlammError, *, as_json: bool) -> None:
    """Tells that the servers that know the group do not answer, and which coordinators are dead."""
    coordinators = admin.describe_cluster(timeout_ms=ANSWER_MS).coordinators
    dead = [coordinator for coordinator in coordinators if coordinator.fenced]
    names = ", ".join(f"{coordinator.node_id} at {coordinator.host}:{coordinator.port}" for coordinator in dead)
    text = f"the coordinator of the group does not answer: {error}"
    if dead:
        text = f"coordinator {names} is dead, and the group has none: {error}"
    do = "start the coordinator; `klamm cluster status` shows all servers"
    if as_json:
        print_json({"group": group, "causes": [{"kind": "coordinator", "text": text, "do": do}]})
    else:
        print_sentences(f"group {group}: its members cannot join, and its offsets cannot be read", text, f"do: {do}")

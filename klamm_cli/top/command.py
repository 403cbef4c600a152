"""The command `klamm top`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.errors import ConfigError, KlammError
from klamm.printable import printable
from klamm_cli.console.colors import color_of, is_colored
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    explain,
    fail,
    print_json,
    print_lines,
    print_rows,
    print_state,
)
from klamm_cli.console.table import table_lines

if TYPE_CHECKING:
    from rich.console import Group

    from klamm_cli.top.rates import Frame
    from klamm_cli.top.watcher import Watcher

_LAGS_SHOWN: Final = 20
"""The samples of a group's lag over time."""

app = new_app()


@app.command(epilog=examples("klamm top", "klamm top --topics 'orders-*' --once --json"))
def top(
    topics: Annotated[
        str | None,
        typer.Option("--topics", metavar="PATTERN", help="Show only these topics, such as orders-*."),
    ] = None,
    groups: Annotated[
        str | None, typer.Option("--groups", metavar="PATTERN", help="Show only these groups, such as billing-*.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="NUMBER", min=1, max=1_000, help="Show at most this many rows in a table."),
    ] = 15,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", "-i", min=0.1, max=3_600, metavar="SECONDS", help="The time between two measurements."
        ),
    ] = 2.0,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="The address of a broker's metrics (metrics.port), for bytes out; repeatable.",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Measure twice, print the rates in between, and end.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show the rates and lags of the cluster, until Ctrl-C.

    The command shows the rates of topics and brokers, and the lag and commit rate of groups.

    Records are counted by offsets. Bytes in are the growth of the leaders' logs (compressed, as on disk), or the
    brokers' own count with --metrics. Bytes out are known only with --metrics. COMMITTED/S is the number of records
    per second that all groups have committed. BEHIND is the age of the oldest record that a group has still to read.
    LAG/S is how fast a group's lag grows. The rates need three commits of the group. With --once, LAG/S needs an
    --interval of 15 seconds. The command watches at most 2,000 partitions and 50 groups, and a line shows how many it
    leaves out."""
    from klamm_cli.top.metrics_text import parse_endpoint
    from klamm_cli.top.watcher import Scope, Watcher

    if as_json and not once:
        fail("--json needs --once", ExitStatus.USAGE)
    endpoints = [parse_endpoint(metric) for metric in metrics or ()]
    scope = Scope(topics=topics, groups=groups, endpoints=endpoints, timeout_s=timeout)
    with connected(bootstrap, timeout) as admin:
        watcher = Watcher(admin, scope)
        if once:
            _print_once(watcher, interval, limit, as_json=as_json)
        else:
            _watch(watcher, interval, limit, bootstrap)


def _print_once(watcher: Watcher, interval_s: float, limit: int, *, as_json: bool) -> None:
    from klamm_cli.top.rates import frame

    before = watcher.sample()
    time.sleep(interval_s)
    found = frame(before, watcher.sample(), limit=limit)
    if as_json:
        print_json(found.document())
        return
    print_lines(_headline(found))
    print_state("healthy" if found.is_healthy else "degraded", found.health)
    for columns, rows in _tables(found, {}):
        print_lines("")
        print_rows(columns, rows, as_json=False)


def _watch(watcher: Watcher, interval_s: float, limit: int, bootstrap: str) -> None:
    """Shows the rates until Ctrl-C. During a fail-over, the screen shows the error and the last figures."""
    from rich.console import Console
    from rich.live import Live

    from klamm_cli.top.group_history import GroupHistory
    from klamm_cli.top.rates import frame

    console = Console()
    before, shown, trouble = None, None, ""
    history = GroupHistory()
    lags: dict[str, deque[int]] = {}
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            try:
                after = watcher.sample()
                history.add(after, {name: group.lag for name, group in after.groups.items()})
                shown = shown if before is None else frame(before, after, limit=limit, history=history)
                before, trouble = after, ""
                if shown is not None:
                    _note_lags(lags, shown)
            except ConfigError:
                raise
            except KlammError as error:
                trouble = explain(error, bootstrap)
            live.update(_screen(shown, lags, trouble, console.width), refresh=True)
            time.sleep(interval_s)


def _note_lags(lags: dict[str, deque[int]], shown: Frame) -> None:
    """Adds the lags of the groups on the screen to those before. Forgets the other groups."""
    now = {row["group"]: row["lag"] for row in shown.groups}
    for group in lags.keys() - now.keys():
        del lags[group]
    for group, lag in now.items():
        lags.setdefault(group, deque(maxlen=_LAGS_SHOWN)).append(lag)


def _screen(shown: Frame | None, lags: Mapping[str, Sequence[int]], trouble: str, width: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(printable(_headline(shown)) if shown else "looking, for the first rates")]
    if shown:
        parts.append(Text(printable(shown.health), style="green" if shown.is_healthy else "red"))
    parts += [Text(printable(trouble), style="bold red")] if trouble else []
    color = color_of if is_colored() else None
    for columns, rows in _tables(shown, lags) if shown else ():
        header, *lines = table_lines(columns, rows, width=width, color_of=color)
        parts += [Text(""), Text(header, style="bold"), Text.from_ansi("\n".join(lines))]
    return Group(*parts)


def _headline(found: Frame) -> str:
    left_out = f"\n{found.left_out}" if found.left_out else ""
    return f"{found.records_s:,.1f} records/s, over {found.interval_s:.1f} s{left_out}"


def _tables(found: Frame, lags: Mapping[str, Sequence[int]]) -> list[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """Returns the tables that have rows. Groups have their `lags` over time, if they are known."""
    from klamm_cli.text.amounts import duration
    from klamm_cli.text.sparkline import sparkline
    from klamm_cli.top.rates import BROKER_COLUMNS, ENDPOINT_COLUMNS, GROUP_COLUMNS, TOPIC_COLUMNS

    groups = [
        {
            **row,
            "behind": duration(row["behind_ms"]) if row["lag"] else "0",
            "lag over time": sparkline(lags.get(row["group"], ())),
        }
        for row in found.groups
    ]
    group_columns = (*GROUP_COLUMNS, "lag over time") if lags else GROUP_COLUMNS

    tables = (
        (TOPIC_COLUMNS, found.topics),
        (BROKER_COLUMNS, found.brokers),
        (group_columns, groups),
        (ENDPOINT_COLUMNS, found.endpoints),
    )
    return [
        (tuple(map(_per_second, columns)), [tuple(row[name] for name in columns) for row in rows])
        for columns, rows in tables
        if rows
    ]


def _per_second(column: str) -> str:
    """Returns the title of a column, for example `records/s` for `records_s`."""
    return f"{column[:-2]}/s" if column.endswith("_s") else column

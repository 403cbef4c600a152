"""`klamm log`: shows what the files of a data directory hold (Kafka's `kafka-dump-log`). The module `scrub` finds
damage."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from klamm_cli.commands.scrub import scrub
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import fail

app = new_app("Show the files of a data directory; find and repair damage.")
app.command("scrub", epilog=examples("klamm log scrub", "klamm log scrub orders:2 --broker 1"))(scrub)


@app.command(
    "dump",
    epilog=examples(
        "klamm log dump klamm-data/orders-0 --records",
        "klamm log dump klamm-data/__consumer_offsets-3 --offsets-decoder --json",
    ),
)
def dump(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, or directories with such files.", show_default=False)
    ],
    records: Annotated[bool, typer.Option("--records", help="Show the records of each batch, too.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets-decoder", help="Decode the records as those of __consumer_offsets.")
    ] = False,
    transactions: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Decode the records as those of __transaction_state.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare indexes with their logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show what the files of a data directory hold.

    The command reads segments, indexes, producer snapshots, checkpoints and the controllers' metadata.db. It writes
    nothing, and may run while a server uses the files. It notes an incomplete batch at the end of a log. It reports
    other bytes that no server writes as damage, with place and cause, and continues after the damage. Exit status: 0,
    or 1 if a file is damaged or cannot be read."""
    if offsets and transactions:
        fail("expected one of --offsets-decoder and --transaction-log-decoder", ExitStatus.USAGE)
    for path in paths:
        if not os.path.exists(path):
            fail(f"{path}: no such file or directory", ExitStatus.USAGE)
    try:
        from klamm_cli.log_dump.dump import DumpOptions, run
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: pip install 'klamm[server]'")
    options = DumpOptions(records=records, offsets=offsets, transactions=transactions, verify=verify)
    if not run(paths, options, as_json=as_json, write=sys.stdout.write):
        raise typer.Exit(int(ExitStatus.FAILED))

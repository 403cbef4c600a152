"""`klamm ledgers`: list, describe, delete the batch ledgers of queries (`klamm.batches`)."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from klamm.errors import ErrorCode
from klamm.ledger_ids import LedgerId
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
    print_message,
    print_rows,
)
from klamm_cli.text.amounts import counted

app = new_app("List, describe and delete the batch ledgers of queries.")

Sink = Annotated[str, typer.Argument(metavar="SINK", help="The sink's name.", show_default=False)]
QueryId = Annotated[str, typer.Argument(metavar="QUERY", help="The query's id.", show_default=False)]


@app.command("list", epilog=examples("klamm ledgers list"))
def list_(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """List ledgers with their open and prepared transactions."""
    with connected(bootstrap, timeout) as admin:
        listed = admin.list_ledgers()
    rows = [
        (
            *listing.ledger,
            listing.run_id,
            listing.committed_batch_id,
            len(listing.open_parts),
            sum(part.prepared_ms >= 0 for part in listing.open_parts),
        )
        for listing in listed.values()
    ]
    print_rows(("sink", "query_id", "run_id", "committed_batch_id", "open", "prepared"), rows, as_json=as_json)


@app.command("describe", epilog=examples("klamm ledgers describe spark 6f2a3c1e-9b1d-4c55-8f57-0d2f3b6a7c10"))
def describe(
    sink: Sink,
    query_id: QueryId,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show a ledger's open transactions.

    To end one, run `klamm transactions abort`."""
    ledger = LedgerId(sink, query_id)
    with connected(bootstrap, timeout) as admin:
        found = admin.list_ledgers().get(ledger)
    if found is None:
        fail(f"there is no ledger of sink {sink!r} and query {query_id!r}", ExitStatus.FAILED)
    now_ms = round(time.time() * 1000)
    rows = [
        (part.transactional_id, None if part.prepared_ms < 0 else now_ms - part.prepared_ms)
        for part in found.open_parts
    ]
    print_rows(("transactional_id", "prepared_ms_ago"), rows, as_json=as_json)


@app.command("delete", epilog=examples("klamm ledgers delete spark 6f2a3c1e-9b1d-4c55-8f57-0d2f3b6a7c10 --if-exists"))
def delete(
    sink: Sink,
    query_id: QueryId,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if there is no such ledger.")] = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Delete the ledger of a query that will never run again.

    If the query ran again, it would write its last batch twice."""
    ledger = LedgerId(sink, query_id)
    with connected(bootstrap, timeout) as admin:
        found = admin.list_ledgers().get(ledger) if if_exists or validate_only else None
        is_missing = found is None and if_exists
        if is_missing:
            print_message(f"there is no ledger of sink {sink!r} and query {query_id!r}")
        elif not validate_only:
            admin.delete_ledger(ledger)
        elif found is None:
            missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            raise missing.exception(missing.text)
    lines = [] if is_missing else [f"{tense(validate_only, 'deleted', 'delete')} the ledger of {sink} and {query_id}"]
    if validate_only and found is not None and found.open_parts:
        lines.append(f"would abort {counted(len(found.open_parts), 'open transaction')}")
    document = {"deleted": [] if is_missing else [{"sink": sink, "query_id": query_id}]}
    print_change(document, *lines, as_json=as_json, validate_only=validate_only)

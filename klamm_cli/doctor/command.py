"""The command `klamm doctor`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.errors import ConfigError, KlammError
from klamm_cli.console.bootstrap_option import BOOTSTRAP_VARIABLE
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.command_config import client_settings
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Json,
    Timeout,
    explain,
    fail,
    print_json,
    print_lines,
    print_state,
)
from klamm_cli.doctor.finding import Finding, Level, ok, problem, warning

if TYPE_CHECKING:
    from klamm import Admin

_DATA_DIR: Final = "klamm-data"
_MARKS: Final = {Level.OK: "ok      ", Level.WARNING: "WARNING ", Level.PROBLEM: "PROBLEM "}

_STATES: Final = {Level.OK: "ok", Level.WARNING: "moving", Level.PROBLEM: "failed"}
"""The words whose colours the levels have."""

app = new_app()


@app.command(
    epilog=examples(
        "klamm doctor --bootstrap broker-1:9094", "klamm doctor --config broker.properties --data-dir /var/lib/klamm"
    )
)
def doctor(
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "--bootstrap-servers",
            "-b",
            envvar=BOOTSTRAP_VARIABLE,
            metavar="HOST:PORT",
            help="The address of a broker, or several separated by commas"
            f" [default: {DEFAULT_BOOTSTRAP} if a server answers there].",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="FILE", help="Check this properties file of a server; repeatable."),
    ] = None,
    data_dir: Annotated[
        list[str] | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help=f"Check this data directory; repeatable [default: {_DATA_DIR} if it exists].",
        ),
    ] = None,
    as_json: Json = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Find problems of a cluster or a machine, and show what to do.

    On this machine, it checks Python, libraries and limits. With --config it checks a server's settings, listeners and
    directories. With --data-dir it checks free space, the file system, and the cluster of the data. With a cluster, it
    checks all that `klamm cluster status` checks, and whether each server's advertised address resolves, connects and
    serves. It compares clocks and versions. It looks for settings that lose or reject records, for internal topics with
    too few replicas, and for listeners that are open to everybody. The command changes nothing.

    Exit status: 0 without a PROBLEM (there may be a WARNING), 1 with one."""
    if missing := [path for path in config or () if not os.path.isfile(path)]:
        fail(f"--config {', '.join(missing)}: no such file", ExitStatus.USAGE)
    if data_dir is None:
        data_dir = [_DATA_DIR] if os.path.isdir(_DATA_DIR) else []
    findings, cluster_ids = _of_machine(config or [], data_dir)
    findings += _of_cluster(bootstrap, timeout, cluster_ids)
    if as_json:
        print_json([{"level": finding.level.value, **_texts(finding)} for finding in findings])
    else:
        for finding in findings:
            print_state(_STATES[finding.level], f"{_MARKS[finding.level]}{finding.check}: {finding.text}")
            if finding.advice:
                print_lines(f"        -> {finding.advice}")
    if any(finding.level is Level.PROBLEM for finding in findings):
        raise typer.Exit(int(ExitStatus.FAILED))


def _texts(finding: Finding) -> dict[str, str]:
    return {"check": finding.check, "text": finding.text, "advice": finding.advice}


def _of_machine(config: list[str], data_dirs: list[str]) -> tuple[list[Finding], dict[str, str]]:
    from klamm_cli.doctor.host import check_host, this_host

    findings = check_host(this_host())
    try:
        from klamm_cli.doctor.local import check_local
    except ModuleNotFoundError as error:
        if not config and not data_dirs:
            return findings, {}
        missing = warning("config", f"not looked at: {error.name} is missing", "pip install 'klamm[server]'")
        return [*findings, missing], {}
    found, cluster_ids = check_local(config, data_dirs)
    return [*findings, *found], cluster_ids


def _of_cluster(bootstrap: str | None, timeout_s: float, data_dirs: dict[str, str]) -> list[Finding]:
    from klamm import Admin

    servers = bootstrap or DEFAULT_BOOTSTRAP
    try:
        with Admin({"default.api.timeout.ms": 30_000, **client_settings(servers)}) as admin:
            admin.describe_cluster(timeout_ms=round(timeout_s * 1000))
            return _ask(admin, servers, timeout_s, data_dirs)
    except ConfigError as error:
        return [problem("cluster", str(error), "name its servers as host:port")]
    except KlammError as error:
        if bootstrap is None:
            return [ok("cluster", f"nobody answers at {servers}: only this machine was looked at")]
        return [
            problem("cluster", explain(error, servers), "see that a server runs there, and that no firewall is between")
        ]


def _ask(admin: Admin, servers: str, timeout_s: float, data_dirs: dict[str, str]) -> list[Finding]:
    from klamm.config import ClientConfig
    from klamm_cli.doctor.cluster_checks import check_cluster
    from klamm_cli.doctor.cluster_settings import broker_settings
    from klamm_cli.doctor.rights import check_rights
    from klamm_cli.doctor.server_checks import check_servers, hosts_of
    from klamm_cli.doctor.server_probe import probe, targets
    from klamm_cli.status.gather import gather

    timeout_ms = round(timeout_s * 1000)
    facts = gather(admin, time.monotonic() + timeout_s)
    settings, unknown = broker_settings(admin, facts.cluster, timeout_ms)
    answers = probe(targets(facts.cluster), timeout_s, ClientConfig.parse(client_settings(servers)))
    return [
        *check_cluster(facts, settings, data_dirs),
        *unknown,
        *check_servers(answers, hosts_of(servers)),
        *check_rights(admin, timeout_ms),
    ]

"""Checks the answers of servers. Pure."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from klamm.version import __version__
from klamm_cli.doctor.finding import Finding, ok, problem, warning
from klamm_cli.doctor.host import OPEN_FILES_MIN
from klamm_cli.doctor.server_probe import ProbeAnswer

MIGRATION_ADVICE: Final = (
    "it lets in every client in plain text: when the last client has changed, close those listeners, take"
    " User:ANONYMOUS out of super.users and leave it out"
)
SKEW_MS_MAX: Final = 1_000
"""A larger clock difference gets a warning. Clocks decide on timestamps of records, retention by time, expiry of
offsets, and transaction time-outs after a fail-over."""


def check_servers(answers: Sequence[ProbeAnswer], bootstrap_hosts: Iterable[str]) -> list[Finding]:
    """Returns the findings about the answers. `bootstrap_hosts` are the hosts at which this client found the
    cluster."""
    return [
        *_check_addresses(answers, list(bootstrap_hosts)),
        *_check_health(answers),
        *_check_clocks(answers),
        *_check_versions(answers),
        *_check_open_files(answers),
        *_check_authorizers(answers),
        *_check_migration(answers),
    ]


def _check_addresses(answers: Sequence[ProbeAnswer], bootstrap_hosts: Sequence[str]) -> Iterator[Finding]:
    reached = 0
    from_afar = not any(map(is_loopback, bootstrap_hosts))
    for answer in answers:
        target = answer.target
        address = f"{target.host}:{target.port}"
        said = f"{target.name} tells others to dial {address}, which"
        setting = "set advertised.listeners to an address that every client and server reaches"
        if answer.not_resolved:
            yield problem(
                "addresses", f"{said} does not resolve here: {answer.not_resolved}", f"{setting}, or mend DNS"
            )
        elif from_afar and is_loopback(target.host):
            yield problem("addresses", f"{said} is each machine's own loopback", setting)
        elif answer.not_connected:
            yield problem(
                "addresses",
                f"{said} takes no connection: {answer.not_connected}",
                f"see that it runs, and that no firewall is between; or {setting}",
            )
        else:
            reached += 1
    if reached:
        yield ok("addresses", f"{reached} of {len(answers)} advertised addresses resolve and connect")


def is_loopback(host: str) -> bool:
    """Returns whether `host` is a loopback address, at which each machine reaches itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_health(answers: Iterable[ProbeAnswer]) -> Iterator[Finding]:
    for answer in answers:
        if answer.health not in ("", "SERVING"):
            yield problem(
                "health",
                f"{answer.target.name} answers, but is {answer.health}",
                "its log says what it waits for; its connection to the controllers, mostly",
            )


def _check_clocks(answers: Iterable[ProbeAnswer]) -> Iterator[Finding]:
    seen = {answer.target.name: answer for answer in answers if answer.skew_ms is not None}
    off = {name: answer for name, answer in seen.items() if _is_off(answer)}
    for name, answer in off.items():
        assert answer.skew_ms is not None
        ahead = "ahead of" if answer.skew_ms > 0 else "behind"
        yield warning(
            "clocks",
            f"the clock of {name} is {abs(answer.skew_ms) / 1000:.1f} s {ahead} this machine's",
            "have NTP (chrony, systemd-timesyncd) set the clocks of all machines",
        )
    if seen and not off:
        largest = max(abs(answer.skew_ms or 0) for answer in seen.values())
        yield ok("clocks", f"{len(seen)} servers' clocks are within {largest} ms of this machine's")


def _is_off(answer: ProbeAnswer) -> bool:
    return abs(answer.skew_ms or 0) > SKEW_MS_MAX + answer.uncertainty_ms


def _check_versions(answers: Sequence[ProbeAnswer]) -> Iterator[Finding]:
    asked = [answer for answer in answers if answer.health]
    names: defaultdict[str, list[str]] = defaultdict(list)
    for answer in asked:
        names[answer.version or "one that does not tell its version"].append(answer.target.name)
    listed = "; ".join(f"{version}: {', '.join(some)}" for version, some in sorted(names.items()))
    if len(names) > 1:
        yield warning("versions", f"servers differ: {listed}", "bring the upgrade to its end")
    elif names:
        (version,) = names
        if version == __version__:
            yield ok("versions", f"{len(asked)} servers, all {version}")
        else:
            yield warning("versions", f"servers: {version}; this machine: {__version__}", "upgrade the older side")


def _check_open_files(answers: Iterable[ProbeAnswer]) -> Iterator[Finding]:
    for answer in answers:
        if 0 < answer.open_files_max < OPEN_FILES_MIN:
            yield warning(
                "open files",
                f"{answer.target.name} may have {answer.open_files_max} files open",
                f"raise the hard limit of its process to {OPEN_FILES_MIN} or more",
            )


def _check_authorizers(answers: Iterable[ProbeAnswer]) -> Iterator[Finding]:
    told = {answer.target.name: answer.has_authorizer for answer in answers if answer.has_authorizer is not None}
    open_to_all = [name for name, has_one in told.items() if not has_one]
    if told and not open_to_all:
        yield ok("authorization", f"{len(told)} servers, all with an authorizer")
    elif len(open_to_all) < len(told):
        yield problem(
            "authorization",
            f"every client may do everything at {', '.join(open_to_all)}: other servers have an authorizer, these"
            " have none",
            "start them with the authorizer.class.name and super.users of the others",
        )


def _check_migration(answers: Iterable[ProbeAnswer]) -> Iterator[Finding]:
    migrating = [answer.target.name for answer in answers if answer.is_migrating]
    if migrating:
        yield warning("migration", f"security.migration.enable is on at {', '.join(migrating)}", MIGRATION_ADVICE)


def hosts_of(bootstrap: str) -> list[str]:
    """Returns the hosts in a text such as `host:port,host:port`."""
    return [address.strip().rpartition(":")[0] for address in bootstrap.split(",") if address.strip()]

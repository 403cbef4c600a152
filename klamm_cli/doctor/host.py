"""Checks this machine's Python, libraries and limits."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from klamm.version import __version__
from klamm_cli.doctor.finding import Finding, ok, problem, warning

OPEN_FILES_MIN: Final = 10_000
"""A broker keeps two or three files open for each partition, 512 closed segments, and a connection for each client."""
_PYTHON_MIN: Final = (3, 11)
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)\s*(?P<bounds>[^;]*)(?:;\s*extra == ['\"](?P<extra>\w+)['\"])?"
)
_BOUND: Final = re.compile(r"(>=|<|==)\s*([0-9][0-9.]*)")
_EXTRAS: Final = ("", "server")
"""The extras that a cluster needs. The others are for Spark, demos and tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The facts about this machine that the checks read."""

    python: tuple[int, int, int]
    optimized: bool
    """Whether Python runs without assertions (`python -O`)."""
    requirements: tuple[str, ...] | None
    """The requirements of the installed package, or None if Klamm runs from its sources."""
    installed: Mapping[str, str]
    """The installed version of each package in `requirements`, by name. Missing packages are left out."""
    open_files_hard: int
    """The hard limit of open files, to which a server raises its soft limit; -1: no limit."""


def this_host() -> Host:
    try:
        requirements: tuple[str, ...] | None = tuple(importlib.metadata.requires("klamm") or ())
    except importlib.metadata.PackageNotFoundError:
        requirements = None
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return Host(
        python=sys.version_info[:3],
        optimized=not __debug__,
        requirements=requirements,
        installed=dict(_installed(requirements or ())),
        open_files_hard=-1 if hard == resource.RLIM_INFINITY else hard,
    )


def _installed(requirements: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in requirements:
        name = _parse(text)[0]
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def check_host(host: Host) -> list[Finding]:
    """Returns all findings about this machine. Pure."""
    return [*_check_python(host), *_check_libraries(host), *_check_open_files(host)]


def _check_python(host: Host) -> Iterator[Finding]:
    text = f"Klamm {__version__}, Python {'.'.join(map(str, host.python))} ({platform.system()})"
    if host.python < _PYTHON_MIN:
        yield problem("python", text, f"install Python {'.'.join(map(str, _PYTHON_MIN))} or newer")
    elif host.optimized:
        yield problem(
            "python", f"{text}, without assertions", "unset PYTHONOPTIMIZE, run without -O: servers refuse to start"
        )
    else:
        yield ok("python", text)


def _check_libraries(host: Host) -> Iterator[Finding]:
    if host.requirements is None:
        yield warning("libraries", "klamm is not installed as a package", "pip install 'klamm[server]'")
        return
    shown = []
    for text in host.requirements:
        name, bounds, extra = _parse(text)
        if extra not in _EXTRAS:
            continue
        version = host.installed.get(name)
        if version is None:
            needed = "to run servers" if extra else "always"
            report = warning if extra else problem
            yield report("libraries", f"{name} is missing, needed {needed}", "pip install 'klamm[server]'")
        elif not _within(version, bounds):
            yield problem("libraries", f"{name} {version} is not {bounds}", f"pip install '{name}{bounds}'")
        else:
            shown.append(f"{name} {version}")
    if shown:
        yield ok("libraries", ", ".join(shown))


def _parse(requirement: str) -> tuple[str, str, str]:
    """Returns the name, the version bounds and the extra of a requirement."""
    found = _REQUIREMENT.match(requirement)
    assert found is not None, requirement
    return found["name"], found["bounds"].strip(), found["extra"] or ""


def _within(version: str, bounds: str) -> bool:
    number = _number(version)
    for operator, bound in _BOUND.findall(bounds):
        limit = _number(bound)
        if (operator == ">=" and number < limit) or (operator == "<" and number >= limit):
            return False
        if operator == "==" and number != limit:
            return False
    return True


def _number(version: str) -> tuple[int, ...]:
    """Returns the leading numbers of the version, without trailing zeros."""
    numbers = [int(part) for part in re.match(r"\d+(\.\d+)*|", version)[0].split(".") if part]  # type: ignore[index]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _check_open_files(host: Host) -> Iterator[Finding]:
    limit = host.open_files_hard
    text = "no limit of open files" if limit < 0 else f"a process may have {limit} files open (ulimit -Hn)"
    if 0 <= limit < OPEN_FILES_MIN:
        yield warning(
            "open files",
            text,
            f"raise it to {OPEN_FILES_MIN} (LimitNOFILE= of systemd, nofile in limits.conf, --ulimit of docker)",
        )
    else:
        yield ok("open files", text)

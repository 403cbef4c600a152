"""Derives the settings of each broker process of a host from one configuration.

| setting                           | of process K, counted from 1                                        |
|-----------------------------------|---------------------------------------------------------------------|
| node.id                           | K - 1 more than configured                                          |
| listeners, advertised.listeners   | each port 10 * (K - 1) more than configured                         |
| metrics.port                      | the same, unless it is 0                                            |
| log.dirs                          | as configured for process 1, each with `-K` at its end for another  |
| broker.rack                       | the same for all, with the name of the host at its end              |
| fetch.session.max.bytes           | if it is not set, an equal share of what one broker would take      |

The first process has the directories of a broker that runs alone, so a host can begin with one process and get more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from klamm.errors import ConfigError
from klamm.failure_domains import on_host
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.net.listeners import PORT_MAX

PORT_STEP: Final = 10
"""The step between the ports of one process and those of the next."""
PROCESSES_MAX: Final = 256
_PORT: Final = re.compile(r":(\d+)$")


class Place(NamedTuple):
    """A process's number, counted from 1, and the number of processes on the host."""

    number: int
    total: int


def process_settings(config: BrokerConfig, place: Place, *, host: str, memory_bytes: int) -> dict[str, str]:
    """Returns the settings of a process that differ from `config`, which is the configuration of the host. `host` is
    the host's name, and `memory_bytes` is what one broker alone would use for fetch sessions.

    Raises ConfigError if a port would be too large."""
    further = place.number - 1
    settings = {
        "node.id": str(config.node_id + further),
        "listeners": _shifted("listeners", config.listeners, further),
        "log.dirs": ",".join(directory_of(data_dir, place.number) for data_dir in config.data_dirs),
        "broker.rack": on_host(config.broker_rack, host),
    }
    if config.advertised_listeners is not None:
        settings["advertised.listeners"] = _shifted("advertised.listeners", config.advertised_listeners, further)
    if config.metrics_port:
        settings["metrics.port"] = str(_port("metrics.port", config.metrics_port, further))
    if not config.fetch_session_max_bytes:
        settings["fetch.session.max.bytes"] = str(max(1, memory_bytes // place.total))
    return settings


def directory_of(directory: str, number: int) -> str:
    """Returns the log directory of process `number` for the configured one."""
    return directory if number == 1 else f"{directory.rstrip('/')}-{number}"


def found_processes(directories: Iterable[str]) -> int:
    """Returns the number of processes for which the host has log directories, at least 1."""
    numbers = [1]
    for directory in map(Path, directories):
        for path in directory.parent.glob(f"{directory.name}-*"):
            suffix = path.name.removeprefix(f"{directory.name}-")
            if suffix.isdecimal() and path.is_dir() and any(path.iterdir()):
                numbers.append(int(suffix))
    return max(numbers)


def check_processes(config: BrokerConfig, count: int) -> None:
    """Raises ConfigError if `count` processes cannot run with the configuration.

    Each process that has records must be among them. A new directory must be on the same disk as the configured one.
    The port between servers must be known."""
    directories = config.data_dirs
    if (found := found_processes(directories)) > count:
        left = directory_of(directories[0], found)
        raise ConfigError(
            f"--processes {count}: {left} has the partitions of broker {config.node_id + found - 1}, expected at least"
            f" {found} processes, or that you decommission this broker and remove the directory"
        )
    for directory in directories if count > 1 else ():
        if os.path.ismount(directory):
            raise ConfigError(
                f"log.dirs: {directory} is a mount point, so {directory_of(directory, 2)} would be on another disk,"
                " expected a directory below it"
            )
    between = config.resolved_listeners().between_servers
    if not between.port:
        raise ConfigError(
            f"listeners: {between.name}://{between.host}:0 is not valid with --processes, expected a port other than 0"
        )


def check_ports(configs: Sequence[BrokerConfig]) -> None:
    """Raises ConfigError if two processes would listen on the same port."""
    used: dict[int, str] = {}
    for number, config in enumerate(configs, 1):
        for name, port in _ports(config):
            own = f"{name} of process {number}"
            other = used.setdefault(port, own) if port else own
            if other != own:
                raise ConfigError(
                    f"--processes {len(configs)}: {other} and {own} have the same port {port}, expected ports in"
                    f" listeners and metrics.port that differ in their last digit, because those of the processes are"
                    f" {PORT_STEP} apart"
                )


def _ports(config: BrokerConfig) -> Iterable[tuple[str, int]]:
    yield from ((listener.name, listener.port) for listener in config.resolved_listeners().bound)
    yield "metrics.port", config.metrics_port


def _shifted(setting: str, listeners: Sequence[str], further: int) -> str:
    def shift(match: re.Match[str]) -> str:
        port = int(match[1])
        return f":{_port(setting, port, further) if port else 0}"

    return ",".join(_PORT.sub(shift, listener) for listener in listeners)


def _port(setting: str, port: int, further: int) -> int:
    shifted = port + PORT_STEP * further
    if shifted > PORT_MAX:
        raise ConfigError(
            f"{setting}: process {further + 1} would have the port {shifted}, expected at most"
            f" {PORT_MAX - PORT_STEP * further} for the first process"
        )
    return shifted

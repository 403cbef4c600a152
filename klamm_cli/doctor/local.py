"""All checks of this machine's servers. Does not change anything."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from klamm.errors import ConfigError
from klamm.properties import read_lines, split_lines
from klamm.security.material import load_material
from klamm_cli.doctor.config_files import check_config
from klamm_cli.doctor.data_dirs import check_data_dir, inspect, read_mounts
from klamm_cli.doctor.exposure import check_exposure
from klamm_cli.doctor.finding import Finding, problem
from klamm_cli.doctor.ports import check_ports
from klamm_controller.config import ControllerConfig
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import ServiceConfig


def check_local(config_paths: Sequence[str], data_dirs: Sequence[str]) -> tuple[list[Finding], dict[str, str]]:
    """Returns the findings, and the cluster id in each data directory, by path."""
    findings: list[Finding] = []
    directories = dict.fromkeys(data_dirs)
    for path in config_paths:
        try:
            properties, problems = split_lines(read_lines(Path(path)), path)
        except ConfigError as error:
            findings.append(problem("config", str(error), "mend the file"))
            continue
        findings += [problem("config", text, "mend the line") for text in problems]
        checked = check_config(path, properties)
        findings += checked.findings
        if checked.config is not None:
            findings += check_ports(checked.config)
            findings += check_exposure(path, checked.config)
            findings += _check_keys(path, checked.config)
            directories.update(dict.fromkeys(_directories(checked.config)))
    cluster_ids: dict[str, str] = {}
    mounts = read_mounts()
    for directory in directories:
        found = inspect(os.path.abspath(directory), mounts)
        findings += check_data_dir(found)
        cluster_ids.update(found.cluster_ids)
    return findings, cluster_ids


def _check_keys(path: str, config: ServiceConfig) -> Iterator[Finding]:
    """Yields a problem for each TLS listener whose keys and certificates a server cannot load when it starts."""
    for listener in config.resolved_listeners().bound:
        if listener.security.is_encrypted:
            try:
                load_material(config.tls_settings(listener.name), now=datetime.now(UTC))
            except ConfigError as error:
                yield problem("keys", f"{path}: listener {listener.name}: {error}", "mend it, or it does not start")


def _directories(config: ServiceConfig) -> tuple[str, ...]:
    if isinstance(config, BrokerConfig):
        return config.data_dirs
    return (config.metadata_log_dir,) if isinstance(config, ControllerConfig) else ()

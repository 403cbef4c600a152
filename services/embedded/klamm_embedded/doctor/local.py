"""All checks of this machine's servers. Does not change anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from klamm.cli.doctor.finding import Finding, problem
from klamm.errors import ConfigError
from klamm_broker.config import BrokerConfig
from klamm_controller.config import ControllerConfig
from klamm_embedded.doctor.config_files import check_config
from klamm_embedded.doctor.data_dirs import check_data_dir, look_at, read_mounts
from klamm_embedded.doctor.ports import check_ports
from klamm_server.config import ServiceConfig, read_lines, split_lines


def check_local(config_paths: Sequence[str], data_dirs: Sequence[str]) -> tuple[list[Finding], dict[str, str]]:
    """The findings, and the cluster id in each data directory."""
    findings: list[Finding] = []
    directories = dict.fromkeys(data_dirs)
    for path in config_paths:
        try:
            properties, problems = split_lines(read_lines(Path(path)), path)
        except ConfigError as error:
            findings.append(problem("config", str(error), "mend the file"))
            continue
        findings += [problem("config", each, "mend the line") for each in problems]
        checked = check_config(path, properties)
        findings += checked.findings
        if checked.config is not None:
            findings += check_ports(checked.config)
            directories.update(dict.fromkeys(_directories(checked.config)))
    cluster_ids: dict[str, str] = {}
    mounts = read_mounts()
    for directory in directories:
        found = look_at(os.path.abspath(directory), mounts)
        findings += check_data_dir(found)
        cluster_ids.update(found.cluster_ids)
    return findings, cluster_ids


def _directories(config: ServiceConfig) -> tuple[str, ...]:
    if isinstance(config, BrokerConfig):
        return config.data_dirs
    return (config.metadata_log_dir,) if isinstance(config, ControllerConfig) else ()

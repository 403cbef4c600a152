"""Runs the cluster of `klamm up`, in this process or in several processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from klamm_server.runtime.garbage import loading
from klamm_server.runtime.usable_cores import usable_cores

AUTO_BROKERS_MAX: Final = 32
"""The most brokers that a new cluster gets with `--brokers auto`."""


def run(
    *,
    controllers: int,
    brokers: int | None,
    coordinators: int,
    data_dir: Path,
    host: str,
    port: int,
    kafka_port: int,
    settings: Mapping[str, str],
    is_secured: bool = False,
    die_with_parent: bool = False,
) -> int:
    """Runs a cluster until SIGTERM or SIGINT. Returns the exit status. If `brokers` is None, there is a broker for each
    core. With `die_with_parent`, a cluster in one process
    also ends, as if by kill -9, when its standard input closes. A cluster of several processes ignores it.

    Prints one line on stdout when the cluster is ready, or one on stderr if it cannot start. Only the user who runs a
    secured cluster may read its files, because they have the records."""
    if brokers is None:
        from klamm_embedded.data_dir import brokers_for

        brokers = brokers_for(data_dir, min(usable_cores(), AUTO_BROKERS_MAX))
    if is_secured:
        os.umask(0o077)
    # Import only the modules that are needed. This process does not need the servers if each runs in a process of its
    # own.
    if controllers == brokers == coordinators == 1:
        with loading():
            from klamm_embedded import cluster
        return cluster.run(
            data_dir=data_dir,
            host=host,
            port=port,
            kafka_port=kafka_port,
            settings=settings,
            is_secured=is_secured,
            die_with_parent=die_with_parent,
        )
    with loading():
        from klamm_embedded import processes
        from klamm_embedded.layout import ClusterSize
    size = ClusterSize(controllers=controllers, brokers=brokers, coordinators=coordinators)
    return processes.run(
        size,
        data_dir=data_dir,
        host=host,
        port=port,
        kafka_port=kafka_port,
        settings=settings,
        is_secured=is_secured,
    )

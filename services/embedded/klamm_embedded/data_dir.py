"""The file `cluster.properties` in the data directory of a cluster of several processes.

This file prevents a start with another number of controllers than at the first start. If a single controller used the
log of a quorum of three, there would be two clusters with the same id.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from klamm.errors import KlammError
from klamm.properties import read_properties
from klamm_controller.log.bootstrap import has_bootstrap_records
from klamm_controller.log.data_dir import random_uuid
from klamm_embedded.layout import ClusterSize

_FILE = "cluster.properties"
_EMBEDDED_CONTROLLER = "controller"
"""The subdirectory in which `klamm up` with one process keeps the metadata log."""


def check_embedded(data_dir: Path) -> None:
    """Raises KlammError if the directory holds a cluster of several processes, or users that the cluster would
    ignore."""
    _check_formatted(data_dir, "controller-*", f"format {data_dir / _EMBEDDED_CONTROLLER}")
    path = data_dir / _FILE
    if path.exists():
        controllers = read_properties(path).get("controllers", "several")
        raise KlammError(f"{data_dir} holds a cluster of several processes: start it with --controllers {controllers}")


def brokers_for(data_dir: Path, cores: int) -> int:
    """Returns the number of brokers for `--brokers auto`, which is one for each core. It is no smaller than the number
    of brokers in the directory, because records would be missing. A cluster in one process keeps its only broker."""
    if (data_dir / _EMBEDDED_CONTROLLER).exists():
        return 1
    ids = [path.name.removeprefix("broker-") for path in data_dir.glob("broker-*")]
    return max([cores, *(int(broker_id) for broker_id in ids if broker_id.isdecimal())])


def claim(data_dir: Path, size: ClusterSize) -> str:
    """Returns the id of the cluster in the directory. A new directory becomes one for a cluster of `size`.

    Raises KlammError if the directory cannot be used, was made for another number of controllers, or holds users that
    the cluster would ignore. The numbers of brokers and coordinators may change with every start."""
    path = data_dir / _FILE
    _check_formatted(data_dir, _EMBEDDED_CONTROLLER, f"format {data_dir / 'controller-1'} and the other controllers'")
    if (data_dir / _EMBEDDED_CONTROLLER).exists():
        raise KlammError(f"{data_dir} holds a cluster in one process: start it without --controllers and --brokers")
    try:
        if not path.exists():
            _write(path, {"cluster.id": random_uuid(random.SystemRandom()), "controllers": str(size.controllers)})
    except OSError as error:
        raise KlammError(f"the data directory {data_dir} cannot be used: {error.strerror}") from error
    properties = read_properties(path)
    controllers = properties.get("controllers")
    if controllers != str(size.controllers):
        raise KlammError(
            f"{data_dir} holds a cluster of {controllers} controllers, but --controllers is {size.controllers}"
        )
    if not properties.get("cluster.id"):
        raise KlammError(f"{path}: cluster.id is missing")
    return properties["cluster.id"]


def _check_formatted(data_dir: Path, unread: str, advice: str) -> None:
    """Raises KlammError if `klamm format` wrote into `data_dir` itself, or into a directory of the pattern `unread` in
    it, because this cluster reads neither."""
    for directory in (data_dir, *sorted(data_dir.glob(unread))):
        if has_bootstrap_records(directory):
            raise KlammError(f"`klamm format` wrote users into {directory}, which this cluster does not read: {advice}")


def _write(path: Path, properties: dict[str, str]) -> None:
    """Writes the file atomically, by a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".tmp")
    with partial.open("w", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in properties.items())
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)

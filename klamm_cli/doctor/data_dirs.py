"""Checks data directories: write access, free space, the file system, the owner and the cluster of the data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.errors import KlammError
from klamm.properties import read_properties
from klamm_broker.log.files.meta_properties import META_PROPERTIES_FILE
from klamm_cli.doctor.finding import Finding, ok, problem, warning
from klamm_cli.status.problems import DISK_FULL_PERCENT, used_percent

_CHECK: Final = "data directory"
_MIB: Final = 1024 * 1024
_ROOM_MIN_MIB: Final = 1024
"""Less free space than this is a problem: the size of a segment, in MiB."""
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.glusterfs", "ceph"})
_PASSING: Final = {
    "tmpfs": "memory: gone with a restart of the machine",
    "ramfs": "memory: gone with a restart",
    "overlay": "a container's own layer: gone with the container",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDirFacts:
    """The facts about a data directory that the checks read."""

    path: str
    exists: bool
    writable: bool
    """Whether this user may write in the directory or, if it does not exist, may create it."""
    total_bytes: int
    usable_bytes: int
    file_system: str
    """The type of the file system, or empty if it is not known."""
    foreign_owner: bool
    """Whether the directory belongs to another user, who may be the user that runs the server."""
    cluster_ids: tuple[tuple[str, str], ...]
    """The directory and the cluster id of each meta.properties file, in the data directory and its direct
    subdirectories."""
    unreadable: str
    """The error of a meta.properties file that cannot be read or has no cluster.id; otherwise empty."""


def inspect(path: str, mounts: Sequence[tuple[str, str]]) -> DataDirFacts:
    """Returns the facts about the data directory at `path`. `mounts` comes from `read_mounts`."""
    exists = os.path.isdir(path)
    there = path if exists else _nearest(path)
    stats = os.statvfs(there)
    ids, unreadable = _cluster_ids(Path(path)) if exists else ((), "")
    return DataDirFacts(
        path=path,
        exists=exists,
        writable=os.access(there, os.W_OK | os.X_OK),
        total_bytes=stats.f_blocks * stats.f_frsize,
        usable_bytes=stats.f_bavail * stats.f_frsize,
        file_system=file_system_of(os.path.realpath(there), mounts),
        foreign_owner=exists and os.stat(path).st_uid != os.geteuid(),
        cluster_ids=ids,
        unreadable=unreadable,
    )


def _nearest(path: str) -> str:
    """Returns the closest parent directory of `path` that exists."""
    return next(str(parent) for parent in Path(path).absolute().parents if parent.is_dir())


def _cluster_ids(path: Path) -> tuple[tuple[tuple[str, str], ...], str]:
    found, wrong = [], ""
    for file in sorted([*path.glob(META_PROPERTIES_FILE), *path.glob(f"*/{META_PROPERTIES_FILE}")]):
        try:
            cluster_id = read_properties(file).get("cluster.id", "")
        except KlammError as error:
            wrong = str(error)
            continue
        if cluster_id:
            found.append((str(file.parent), cluster_id))
        else:
            wrong = f"{file} has no cluster.id"
    return tuple(found), wrong


def read_mounts() -> list[tuple[str, str]]:
    """Returns the mount point and type of each mounted file system, or an empty list if there is no /proc."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [
        (fields[1].encode().decode("unicode_escape"), fields[2]) for line in lines if len(fields := line.split()) > 2
    ]


def file_system_of(path: str, mounts: Iterable[tuple[str, str]]) -> str:
    """Returns the type of the file system that contains an absolute path, or an empty text if no mount does. Pure."""
    best, kind = -1, ""
    for point, type_ in mounts:
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= best:  # the later of two mounts at one point hides the earlier
            best, kind = len(point), type_
    return kind


def check_data_dir(found: DataDirFacts) -> list[Finding]:
    """Returns the findings about a data directory. Pure."""
    findings = [
        *_check_access(found),
        *_check_free_bytes(found),
        *_check_file_system(found),
        *_check_identity(found),
    ]
    on = f" on {found.file_system}" if found.file_system else ""
    state = "" if found.exists else ", not there yet"
    return findings or [ok(_CHECK, f"{found.path}{state}: {found.usable_bytes // _MIB} MiB free{on}")]


def _check_access(found: DataDirFacts) -> Iterator[Finding]:
    if not found.writable:
        what = "cannot be written" if found.exists else "is not there and cannot be made"
        yield problem(_CHECK, f"{found.path} {what} by this user", "run the server as its owner, or chown it")
    elif found.foreign_owner:
        yield warning(
            _CHECK, f"{found.path} belongs to another user", "run the server as its owner: what it makes must be theirs"
        )


def _check_free_bytes(found: DataDirFacts) -> Iterator[Finding]:
    free_mib, used = found.usable_bytes // _MIB, used_percent(found.total_bytes, found.usable_bytes)
    advice = "shorten retention (retention.ms, retention.bytes) or add room: a full disk refuses records"
    if free_mib < _ROOM_MIN_MIB:
        yield problem(_CHECK, f"{found.path} has {free_mib} MiB free", advice)
    elif used is not None and used >= DISK_FULL_PERCENT:
        yield warning(_CHECK, f"{found.path}: its disk is {used} % full, {free_mib} MiB free", advice)


def _check_file_system(found: DataDirFacts) -> Iterator[Finding]:
    if found.file_system in _REMOTE:
        yield warning(
            _CHECK,
            f"{found.path} is on {found.file_system}: over a network, where locks and fsync may not hold",
            "use a local disk (ext4, xfs); the copies on other brokers are what protects records",
        )
    elif found.file_system in _PASSING:
        what = _PASSING[found.file_system]
        yield warning(_CHECK, f"{found.path} is on {found.file_system}, {what}", "use a disk, or a volume")


def _check_identity(found: DataDirFacts) -> Iterator[Finding]:
    if found.unreadable:
        yield problem(
            _CHECK, found.unreadable, "restore the file from a backup; other directories of the node show how it was"
        )
    if len({cluster_id for _, cluster_id in found.cluster_ids}) > 1:
        listed = ", ".join(f"{path}: {cluster_id}" for path, cluster_id in found.cluster_ids)
        yield problem(_CHECK, f"directories of several clusters: {listed}", "give each cluster a directory of its own")

"""The records with which a cluster's metadata log begins (KIP-900): the cluster's first users. Without them, no
operator could log in to create users.

`klamm format` writes these records as one MetadataBatch to `bootstrap.records`, which only its owner can read. The
controller that begins the log appends them in one entry with the cluster's id. So the log has either all of them or
none. Every controller removes its file when the log has begun.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from klamm.errors import KlammError
from klamm.secret import Secret
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm.wire.v1.metadata_pb2 import ClusterSecretRecord, MetadataBatch, MetadataRecord
from klamm_server.metadata.image_records import credential_record
from klamm_server.runtime.disk import Disk

_FILE: Final = "bootstrap.records"
_TEMPORARY: Final = f"{_FILE}.tmp"
_SALT_BYTES: Final = 32
_LOCK: Final = ".lock"
"""A controller creates this file when it locks the directory, so the file does not show that a log exists."""


class NewUser(NamedTuple):
    """A user who exists from the cluster's start."""

    name: str
    mechanism: ScramMechanism
    password: Secret
    iterations: int


def user_records(users: Sequence[NewUser]) -> list[MetadataRecord]:
    """Returns the records of the cluster's secret and of the users' credentials. Each credential takes some
    milliseconds of CPU time."""
    records = [MetadataRecord(cluster_secret=ClusterSecretRecord(secret=os.urandom(_SALT_BYTES)))]
    for user in users:
        salt = os.urandom(_SALT_BYTES)
        salted = salted_password(user.mechanism, user.password, salt, user.iterations)
        credential = credential_of(user.mechanism, salted, salt, user.iterations)
        records.append(credential_record((user.name, user.mechanism), credential))
    return records


def write_bootstrap_records(directory: Path, records: Sequence[MetadataRecord]) -> None:
    """Writes the bootstrap records, and creates the directory if there is none. Raises KlammError if the directory is
    not empty or cannot be written."""
    temporary = directory / _TEMPORARY
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_empty(directory)
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(MetadataBatch(records=records).SerializeToString(deterministic=True))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(directory / _FILE)
    except OSError as error:
        raise KlammError(f"the directory {directory} cannot be written: {error.strerror}") from error


def check_empty(directory: Path) -> None:
    """Raises KlammError if the directory has files of a controller. Raises OSError if it cannot be read."""
    if found := sorted(path.name for path in directory.iterdir() if path.name not in (_LOCK, _TEMPORARY)):
        raise KlammError(f"the directory {directory} is not empty: it has {', '.join(found[:3])}")


def read_bootstrap_records(disk: Disk, directory: Path) -> tuple[MetadataRecord, ...]:
    """Returns the bootstrap records in the directory, or an empty tuple if there is no file. Raises KlammError if it
    cannot be read."""
    path = directory / _FILE
    try:
        return tuple(MetadataBatch.FromString(disk.read_file(str(path))).records)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise KlammError(f"{path} cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise KlammError(f"{path} is damaged: expected a file that `klamm format` wrote") from error


def has_bootstrap_records(directory: Path) -> bool:
    """Returns True if `klamm format` wrote records into the directory, and no server has read them yet."""
    return (directory / _FILE).exists()


def remove_bootstrap_records(disk: Disk, directory: Path) -> None:
    """Removes the file of bootstrap records, if there is one."""
    disk.remove([str(directory / _FILE)])

"""Records that a cluster begins with, beside an empty metadata log (KIP-900): its first users, without whom nobody
could log in to make any.

`klamm format` writes them as one MetadataBatch to `bootstrap.records`, for its owner's eyes alone. The controller that
begins the log appends them together with the cluster's id, so they are in the log if that is. Every controller removes
its file when the log has begun.
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

_FILE: Final = "bootstrap.records"
_SALT_BYTES: Final = 32
_LOCK: Final = ".lock"
"""A controller makes it; it says nothing of whether there is a log."""


class NewUser(NamedTuple):
    """A user whom a cluster begins with."""

    name: str
    mechanism: ScramMechanism
    password: Secret
    iterations: int


def user_records(users: Sequence[NewUser]) -> list[MetadataRecord]:
    """The cluster's secret, which comes with the first credential, and the credentials. Some milliseconds of CPU for
    each of them."""
    records = [MetadataRecord(cluster_secret=ClusterSecretRecord(secret=os.urandom(_SALT_BYTES)))]
    for user in users:
        salt = os.urandom(_SALT_BYTES)
        salted = salted_password(user.mechanism, user.password, salt, user.iterations)
        credential = credential_of(user.mechanism, salted, salt, user.iterations)
        records.append(credential_record((user.name, user.mechanism), credential))
    return records


def write_bootstrap_records(directory: Path, records: Sequence[MetadataRecord]) -> None:
    """Makes the directory if there is none. Raises KlammError when there is something in it, or it cannot be
    written."""
    temporary = directory / f"{_FILE}.tmp"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if found := sorted(path.name for path in directory.iterdir() if path.name not in (_LOCK, temporary.name)):
            raise KlammError(f"the directory {directory} is not empty: it has {', '.join(found[:3])}")
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(MetadataBatch(records=records).SerializeToString(deterministic=True))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(directory / _FILE)
    except OSError as error:
        raise KlammError(f"the directory {directory} cannot be written: {error.strerror}") from error


def read_bootstrap_records(directory: Path) -> tuple[MetadataRecord, ...]:
    """Returns the records of the file, or none if there is no file. Raises KlammError if it cannot be read."""
    path = directory / _FILE
    try:
        return tuple(MetadataBatch.FromString(path.read_bytes()).records)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise KlammError(f"{path} cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise KlammError(f"{path} is damaged: expected a file that `klamm format` wrote") from error


def remove_bootstrap_records(directory: Path) -> None:
    """Harmless where there is no file."""
    (directory / _FILE).unlink(missing_ok=True)

"""`meta.properties` of a log directory: its cluster, its node, and its own id (KIP-858).

    version=1
    cluster.id=kAFi-uhTRZ2xVXcNkFUEJA
    node.id=3
    directory.id=Yd8cKqv2T9ShQ5ZyV1rE3g
    broker.directory.ids=Yd8cKqv2T9ShQ5ZyV1rE3g,kAXi-uhTRZ2xVXcNkFUE-A

The first use of a directory writes the file, and every later start compares it. So a broker never uses the data of
another cluster or another broker. Follows Kafka's `MetaProperties`, version 1.

In Kafka, a tool formats directories, and a broker refuses a directory without this file. In Klamm, the start formats
them. It must not treat the mount point of an unmounted disk as a new directory. So each directory lists all
directories of its broker in `broker.directory.ids` (Klamm only; Kafka ignores unknown properties). While one of them
is missing, no directory counts as new. The operator must then mount or configure the directory again, or declare it
lost with `log.dirs.lost=<directory.id>`. Lost ids are removed from the files, so that the next start no longer needs
the setting.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from klamm.setting import split_list
from klamm_broker.log.files.partition_metadata import decode_uuid, encode_uuid
from klamm_broker.log.files.storage_failure import LogDirError
from klamm_server.runtime.disk import Disk

META_PROPERTIES_FILE = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The content of `meta.properties`."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID
    """The id of this directory in the cluster's metadata. It does not depend on the path."""
    broker_directory_ids: frozenset[uuid.UUID]
    """The ids of all log directories of the broker, including this one. Empty if Kafka wrote the file."""

    def encode(self) -> bytes:
        lines = (
            "version=1",
            f"cluster.id={self.cluster_id}",
            f"node.id={self.node_id}",
            f"directory.id={encode_uuid(self.directory_id)}",
            f"broker.directory.ids={','.join(map(encode_uuid, sorted(self.broker_directory_ids)))}",
        )
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, log_dir: str, data: bytes) -> MetaProperties:
        """Parses the file's content. Raises LogDirError, which names the directory and the missing or invalid
        property."""
        values = _properties(data.decode("utf-8", "replace"))
        if values.get("version") != "1":
            raise LogDirError(f"{log_dir}/{META_PROPERTIES_FILE}: version={values.get('version')}; expected 1")
        try:
            return cls(
                cluster_id=values["cluster.id"],
                node_id=int(values["node.id"]),
                directory_id=decode_uuid(values["directory.id"]),
                broker_directory_ids=decode_uuids(split_list(values.get("broker.directory.ids", ""))),
            )
        except (KeyError, ValueError) as error:
            raise LogDirError(f"{log_dir}/{META_PROPERTIES_FILE} is damaged: {error}") from None


def decode_uuids(texts: Iterable[str]) -> frozenset[uuid.UUID]:
    """Parses ids. Raises ValueError unless each is 16 bytes in base64url."""
    return frozenset(map(decode_uuid, texts))


def _properties(text: str) -> dict[str, str]:
    """Parses the `key=value` lines of a Java properties file. Lines that start with `#` or `!` are comments."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip().replace("\\", "") for key, _, value in pairs}


def read_meta_properties(disk: Disk, log_dir: str, *, cluster_id: str, node_id: int) -> MetaProperties | None:
    """Returns the directory's properties, or None without a file.

    Raises LogDirError if the directory belongs to another cluster or node, and OSError if the disk fails."""
    path = f"{log_dir}/{META_PROPERTIES_FILE}"
    if not disk.exists(path):
        return None
    found = MetaProperties.decode(log_dir, disk.read_file(path))
    if found.cluster_id != cluster_id:
        raise LogDirError(
            f"data directory of another cluster: {log_dir} belongs to cluster {found.cluster_id}, "
            f"this is cluster {cluster_id}; use another directory or remove it"
        )
    if found.node_id != node_id:
        raise LogDirError(
            f"data directory of another node: {log_dir} belongs to node {found.node_id}, "
            f"this is node {node_id}; use another directory or set node.id={found.node_id}"
        )
    return found


def write_meta_properties(disk: Disk, log_dir: str, properties: MetaProperties) -> None:
    """Stores the properties durably. Raises OSError."""
    disk.write_atomically(f"{log_dir}/{META_PROPERTIES_FILE}", properties.encode())


def missing_directory_ids(found: Sequence[MetaProperties], *, lost: frozenset[uuid.UUID]) -> frozenset[uuid.UUID]:
    """Returns the ids of the broker's log directories, as listed in `found`, that are neither found nor `lost`."""
    known = frozenset[uuid.UUID]().union(*(properties.broker_directory_ids for properties in found))
    return known - {properties.directory_id for properties in found} - lost

"""`meta.properties` of a log dir: which cluster and node it belongs to, and its own id (KIP-858).

    version=1
    cluster.id=kAFi-uhTRZ2xVXcNkFUEJA
    node.id=3
    directory.id=Yd8cKqv2T9ShQ5ZyV1rE3g
    broker.directory.ids=Yd8cKqv2T9ShQ5ZyV1rE3g,kAXi-uhTRZ2xVXcNkFUE-A

Written when a dir is first used, compared ever after: a broker must never take another cluster's data for
its own, nor two brokers each other's. Follows Kafka's `MetaProperties`, version 1.

Kafka's dirs are formatted by a tool, and one without this file is refused. Ours are formatted by the start, which
must not take the mount point of a disk that is not mounted for a new dir. So each dir names all of its broker's in
`broker.directory.ids` (ours; Kafka ignores properties it does not know), and while one of them is missing no dir is
new. To go on, mount or configure it again, or say with `log.dirs.lost=<directory.id>` that it will not come back; the
ids said to be lost are forgotten, so that the setting can go with the next start.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from klamm.setting import split_list
from klamm_broker.log.files.disk import Disk
from klamm_broker.log.files.partition_metadata import decode_uuid, encode_uuid
from klamm_broker.log.files.storage_failure import LogDirError

META_PROPERTIES_FILE = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The content of the file."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID
    """Names this directory in the cluster's metadata, wherever it is mounted."""
    broker_directory_ids: frozenset[uuid.UUID]
    """The ids of every log dir of the broker, this one included; empty if the file is Kafka's."""

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
        """Raises LogDirError naming the dir and the property that is missing or not usable."""
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
    """Raises ValueError unless each is 16 bytes in base64url."""
    return frozenset(map(decode_uuid, texts))


def _properties(text: str) -> dict[str, str]:
    """`key=value` lines of a Java properties file; `#` and `!` begin comments."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip().replace("\\", "") for key, _, value in pairs}


def read_meta_properties(disk: Disk, log_dir: str, *, cluster_id: str, node_id: int) -> MetaProperties | None:
    """The dir's properties, None if it has none.

    Raises LogDirError if the dir belongs to another cluster or node, OSError if the disk fails."""
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
    """Stores them durably. Raises OSError."""
    disk.write_atomically(f"{log_dir}/{META_PROPERTIES_FILE}", properties.encode())


def missing_directory_ids(found: Sequence[MetaProperties], *, lost: frozenset[uuid.UUID]) -> frozenset[uuid.UUID]:
    """Ids of the log dirs that the broker had, as any of those `found` knows, that are neither here nor `lost`."""
    known = frozenset[uuid.UUID]().union(*(one.broker_directory_ids for one in found))
    return known - {one.directory_id for one in found} - lost

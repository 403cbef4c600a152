"""`meta.properties` of a log dir: which cluster and node it belongs to, and its own id (KIP-858).

    version=1
    cluster.id=kAFi-uhTRZ2xVXcNkFUEJA
    node.id=3
    directory.id=Yd8cKqv2T9ShQ5ZyV1rE3g

Written when a dir is first used, compared ever after: a broker must never take another cluster's data for
its own, nor two brokers each other's. Follows Kafka's `MetaProperties`, version 1.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from klamm_broker.log.disk import Disk
from klamm_broker.log.partition_metadata import decode_uuid, encode_uuid
from klamm_broker.log.storage_failure import LogDirError

META_PROPERTIES_FILE = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The content of the file."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID
    """Names this directory in the cluster's metadata, wherever it is mounted."""

    def encode(self) -> bytes:
        lines = (
            "version=1",
            f"cluster.id={self.cluster_id}",
            f"node.id={self.node_id}",
            f"directory.id={encode_uuid(self.directory_id)}",
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
            )
        except (KeyError, ValueError) as error:
            raise LogDirError(f"{log_dir}/{META_PROPERTIES_FILE} is damaged: {error}") from None


def _properties(text: str) -> dict[str, str]:
    """`key=value` lines of a Java properties file; `#` and `!` begin comments."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip().replace("\\", "") for key, _, value in pairs}


def claim_directory(
    disk: Disk, log_dir: str, *, cluster_id: str, node_id: int, new_directory_id: uuid.UUID
) -> MetaProperties:
    """Reads the dir's properties, writing them first if the dir is new.

    Raises LogDirError if the dir belongs to another cluster or node, OSError if the disk fails."""
    path = f"{log_dir}/{META_PROPERTIES_FILE}"
    if not disk.exists(path):
        found = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=new_directory_id)
        disk.write_atomically(path, found.encode())
        return found
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

"""`partition.metadata`: the id of the topic that a partition directory belongs to.

    version: 0
    topic_id: kAFi-uhTRZ2xVXcNkFUEJA

If a topic is deleted and created again, it has the same name and another id. With this file, the broker never serves
the old topic's records as the new one's. Ids are 16 bytes in unpadded base64url, as Kafka prints them
(`PartitionMetadataFile`).
"""

from __future__ import annotations

import base64
import binascii
import uuid

from klamm.errors import KlammError
from klamm.model import TopicId
from klamm_server.runtime.disk import Disk

PARTITION_METADATA_FILE = "partition.metadata"


class PartitionMetadataError(KlammError):
    """Raised if a partition.metadata file does not follow its format."""


def encode_uuid(value: uuid.UUID) -> str:
    """Returns 22 characters of base64url."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Parses an id. Raises ValueError unless `text` is 16 bytes in base64url."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not base64url") from error


def write_topic_id(disk: Disk, directory: str, topic_id: TopicId) -> None:
    """Stores the topic id durably. Raises OSError."""
    content = f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n"
    disk.write_atomically(f"{directory}/{PARTITION_METADATA_FILE}", content.encode())


def read_topic_id(disk: Disk, directory: str) -> TopicId | None:
    """Returns the stored topic id, or None without a file. Raises PartitionMetadataError and OSError."""
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    if not disk.exists(path):
        return None
    fields = dict(_field(line) for line in disk.read_file(path).decode("utf-8", "replace").splitlines())
    if fields.get("version") != "0":
        raise PartitionMetadataError(f"{path}: expected 'version: 0'")
    try:
        return TopicId(decode_uuid(fields.get("topic_id", "")))
    except ValueError:
        raise PartitionMetadataError(f"{path}: expected 'topic_id: ' and 16 bytes in base64url") from None


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()

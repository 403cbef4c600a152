"""Tests which metadata changes make groups check their topics."""

from __future__ import annotations

import uuid

import pytest

from klamm.acls import AclOperation, ResourceType
from klamm.wire.v1 import metadata_pb2 as m
from klamm_coordinator.io.topic_catalog import TopicCatalog
from klamm_server.metadata.image import MetadataImage, changed_topics
from klamm_server.metadata.replay import replay
from tests.support.callers import allow

ENTRY = allow(AclOperation.DESCRIBE, ResourceType.TOPIC, "t")
ID = uuid.UUID(int=1).bytes
ADDED = m.MetadataRecord(access_control_entry=m.AccessControlEntryRecord(id=ID, **ENTRY._asdict()))
REMOVED = m.MetadataRecord(remove_access_control_entry=m.RemoveAccessControlEntryRecord(id=ID))
TOPIC = m.MetadataRecord(topic=m.TopicRecord(topic_id=uuid.UUID(int=2).bytes, name="t"))
CONFIG = m.MetadataRecord(
    config=m.ConfigRecord(resource_type=m.CONFIG_RESOURCE_TYPE_TOPIC, resource_name="t", name="retention.ms", value="1")
)


@pytest.mark.parametrize(
    ("records", "versions"),
    [([TOPIC], [1]), ([ADDED], [1]), ([ADDED, REMOVED], [1, 2]), ([TOPIC, CONFIG], [1, 1]), ([TOPIC, ADDED], [1, 2])],
)
def test_the_catalog_version_changes_with_topics_and_acls_only(
    records: list[m.MetadataRecord], versions: list[int]
) -> None:
    image = MetadataImage.empty()
    catalog = TopicCatalog(image)
    seen = []
    for record in records:
        after = replay(image, [record], image.end_index + 1)
        catalog, image = catalog.after(after, changed_topics(image, after)), after
        seen.append(catalog.version)
    assert seen == versions

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


def config(name: str, value: str) -> m.MetadataRecord:
    record = m.ConfigRecord(resource_type=m.CONFIG_RESOURCE_TYPE_TOPIC, resource_name="t", name=name, value=value)
    return m.MetadataRecord(config=record)


CONFIG = config("retention.ms", "1")
GONE = m.MetadataRecord(remove_topic=m.RemoveTopicRecord(topic_id=uuid.UUID(int=2).bytes))


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


def test_the_catalog_knows_which_topics_each_group_holds() -> None:
    image = MetadataImage.empty()
    catalog = TopicCatalog(image)
    seen = []
    for record in (TOPIC, config("retention.hold.groups", "a, b"), CONFIG, config("retention.hold.groups", "b"), GONE):
        after = replay(image, [record], image.end_index + 1)
        catalog, image = catalog.after(after, changed_topics(image, after)), after
        seen.append({group_id: dict(catalog.held_by(group_id)) for group_id in ("a", "b", "c")})
    held = {"t": uuid.UUID(int=2).bytes}
    both, one, none = {"a": held, "b": held, "c": {}}, {"a": {}, "b": held, "c": {}}, {"a": {}, "b": {}, "c": {}}
    assert seen == [none, both, both, one, none]

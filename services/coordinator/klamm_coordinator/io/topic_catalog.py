"""The topics of a metadata image, for the rules of consumer groups."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.model import INTERNAL_TOPICS
from klamm_coordinator.groups.topics import TopicInfo
from klamm_server.metadata.image import MetadataImage, TopicsDelta


class TopicCatalog:
    """The topics of one image. `after` returns the catalog of the next image.

    The version counts the changes that concern groups. These are changes of topics, and of access control lists, which
    bound the topics that an expression may match."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._version = 0
        self._created: dict[str, int] = {}
        """The version with which each topic was created. All catalogs of a coordinator share it."""

    @property
    def version(self) -> int:
        return self._version

    def after(self, new: MetadataImage, delta: TopicsDelta) -> TopicCatalog:
        """Returns the catalog of the next image. If only leaders or replicas have moved, the version stays the same."""
        is_changed = (
            bool(delta.created or delta.deleted)
            or new.acls is not self._image.acls
            or any(len(was.partitions) != len(now.partitions) for was, now in delta.changed)
        )
        catalog = TopicCatalog(new)
        catalog._version = self._version + is_changed
        catalog._created = self._created
        for topic in delta.deleted:
            self._created.pop(topic.name, None)
        for topic in delta.created:
            self._created[topic.name] = catalog._version
        return catalog

    def is_newer(self, name: str, version: int) -> bool:
        return self._created.get(name, 0) > version

    def get(self, name: str) -> TopicInfo | None:
        topic = self._image.topic(name)
        return None if topic is None else TopicInfo(topic.topic_id.bytes, len(topic.partitions))

    def names(self) -> Iterable[str]:
        return (name for name in self._image.topics_by_name if name not in INTERNAL_TOPICS)

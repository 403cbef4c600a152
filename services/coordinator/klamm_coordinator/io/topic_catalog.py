"""The topics of a metadata image, for the rules of consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from klamm.model import INTERNAL_TOPICS
from klamm_coordinator.groups.topics import TopicInfo
from klamm_server.config.config_defs import parse
from klamm_server.metadata.image import MetadataImage, TopicsDelta

HOLD_GROUPS: Final = "retention.hold.groups"


class TopicCatalog:
    """The topics of one image. `after` returns the catalog of the next image.

    The version counts the changes that concern groups. These are changes of topics, and of access control lists, which
    bound the topics that an expression may match."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._version = 0
        self._created: dict[str, int] = {}
        """The version with which each topic was created. All catalogs of a coordinator share it."""
        self._holds: Mapping[str, Mapping[str, bytes]] | None = None
        """See `holds`. None until it is needed."""

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
        if new.configs is self._image.configs and not (delta.created or delta.deleted):
            catalog._holds = self._holds
        for topic in delta.deleted:
            self._created.pop(topic.name, None)
        for topic in delta.created:
            self._created[topic.name] = catalog._version
        return catalog

    @property
    def holds(self) -> Mapping[str, Mapping[str, bytes]]:
        """The ids of the topics whose `retention.hold.groups` names a group, by group id and topic name."""
        if self._holds is None:
            self._holds = _holds_of(self._image)
        return self._holds

    def held_by(self, group_id: str) -> Mapping[str, bytes]:
        return self.holds.get(group_id, {})

    def is_newer(self, name: str, version: int) -> bool:
        return self._created.get(name, 0) > version

    def get(self, name: str) -> TopicInfo | None:
        topic = self._image.topic(name)
        return None if topic is None else TopicInfo(topic.topic_id.bytes, len(topic.partitions))

    def names(self) -> Iterable[str]:
        return (name for name in self._image.topics_by_name if name not in INTERNAL_TOPICS)


def _holds_of(image: MetadataImage) -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for (_, name), configs in image.configs.items():
        if HOLD_GROUPS in configs and (topic := image.topic(name)) is not None:
            for group_id in parse(HOLD_GROUPS, configs[HOLD_GROUPS]):
                found.setdefault(group_id, {})[name] = topic.topic_id.bytes
    return found

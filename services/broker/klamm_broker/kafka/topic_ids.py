"""Names for topic ids and back, for the versions of requests that name topics by id (KIP-516)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from klamm_server.metadata.image import MetadataImage

UNKNOWN_TOPIC: Final = "?"
"""Begins what stands for the name of an id that no topic has; no topic's name can."""


class TopicIds:
    """By the newest metadata."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def name_of(self, topic_id: bytes) -> str:
        """The topic's name; a name that no topic has when there is none."""
        topic = self._image().topics_by_id.get(uuid.UUID(bytes=topic_id))
        return UNKNOWN_TOPIC + topic_id.hex() if topic is None else topic.name

    def id_of(self, name: str) -> bytes:
        """16 bytes: what `name_of` made the name from, or zeros when the topic has been deleted meanwhile."""
        if name.startswith(UNKNOWN_TOPIC):
            return bytes.fromhex(name[len(UNKNOWN_TOPIC) :])
        topic = self._image().topic(name)
        return bytes(16) if topic is None else topic.topic_id.bytes

"""Translates topic ids to names and back, for versions of requests that name topics by id (KIP-516)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Final

from klamm_server.metadata.image import MetadataImage

_UNKNOWN_TOPIC: Final = re.compile(r"\?([0-9a-f]{32})")
"""The name that stands for an id without a topic. A client may send such a name too, but no topic can have it."""
_NO_ID: Final = bytes(16)


class TopicIds:
    """The names and ids of topics in the newest metadata."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._named: MetadataImage | None = None
        self._names: dict[bytes, str] = {}
        """The names of the topics of `_named` that were asked for, by topic id."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata. Names can change only with them."""
        return self._image()

    def name_of(self, topic_id: bytes) -> str:
        """Returns the topic's name. For an unknown id, returns a name that no topic can have."""
        image = self._image()
        if image is not self._named:
            self._named, self._names = image, {}
        name = self._names.get(topic_id)
        if name is None:
            topic = image.topics_by_id.get(uuid.UUID(bytes=topic_id))
            if topic is None:
                return f"?{topic_id.hex()}"
            name = self._names[topic_id] = topic.name
        return name

    def id_of(self, name: str) -> bytes:
        """Returns the 16 bytes of a topic's id, also for a name that `name_of` made. Returns zeros for a topic that
        does not exist."""
        if (topic_id := unknown_id(name)) is not None:
            return topic_id
        topic = self._image().topic(name)
        return _NO_ID if topic is None else topic.topic_id.bytes


def id_bytes(topic_id: uuid.UUID | None) -> bytes:
    """Returns the 16 bytes of an id from kio, which decodes zeros as None."""
    return _NO_ID if topic_id is None else topic_id.bytes


def unknown_id(name: str) -> bytes | None:
    """Returns the 16 bytes of the id in a name that `name_of` made, or None for other names."""
    made_up = _UNKNOWN_TOPIC.fullmatch(name)
    return None if made_up is None else bytes.fromhex(made_up[1])

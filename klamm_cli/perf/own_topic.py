"""The topics of `klamm perf`. Each is deleted at the end of its measurement, also after an error or a signal."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm_cli.console.interrupt import interrupt_calls
from klamm_cli.console.output import print_message

if TYPE_CHECKING:
    from klamm import Admin

PREFIX: Final = "klamm-perf-"
_UnknownTopicError: Final = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """What the topics have in common."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def own_topic(admin: Admin, shape: TopicShape, *, fsync: bool) -> Iterator[str]:
    """Creates a topic with a new name, yields the name, and deletes the topic.

    A signal raises KeyboardInterrupt in the body of the `with`. If it comes while the topic is created or deleted, it
    raises KeyboardInterrupt after that, so that no topic stays."""
    from klamm import NewTopic

    name = f"{PREFIX}{secrets.token_hex(6)}"
    # The files of a deleted topic stay for this time. By default, it is a minute.
    configs = {"file.delete.delay.ms": "1000", **shape.configs, **({"flush.messages": "1"} if fsync else {})}
    topic = NewTopic(name, shape.partitions, shape.replication_factor, configs=configs)
    signal = _Signal()
    with interrupt_calls(signal.note):
        try:
            admin.create_topics([topic])
            with interrupt_calls(signal.interrupt):
                signal.raise_if_noted()
                yield name
        finally:
            _delete(admin, name)
    signal.raise_if_noted()


class _Signal:
    """A signal that may have come while a topic was created or deleted."""

    def __init__(self) -> None:
        self._is_noted = False

    def note(self) -> None:
        self._is_noted = True

    def interrupt(self) -> None:
        raise KeyboardInterrupt

    def raise_if_noted(self) -> None:
        """Raises KeyboardInterrupt if there was a signal."""
        if self._is_noted:
            raise KeyboardInterrupt


def _delete(admin: Admin, name: str) -> None:
    """Deletes the topic if it exists. If that fails, prints how to delete it, and keeps the error that ends the
    command."""
    try:
        admin.delete_topics([name])
    except _UnknownTopicError:
        pass
    except KlammError as error:
        print_message(f"klamm: cannot delete topic {name}: {error}; `klamm topics delete {name}` does it later")

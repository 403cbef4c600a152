"""Marks in Redis: one key for each processed record of a group, which expires."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from klamm.consumer.record import ConsumerRecord
from klamm.errors import ConfigError
from klamm.idempotence.ids import IdOf, checked_id

log = logging.getLogger(__name__)


class Redis(Protocol):
    """A client of Redis, as far as it is used here: `redis.Redis` is one."""

    def set(self, name: str, value: str, *, px: int, nx: bool) -> Any: ...
    def delete(self, name: str, /) -> Any: ...


def _place(record: ConsumerRecord[Any, Any]) -> str:
    return f"{record.topic}:{record.partition}:{record.offset}"


class RedisProcessedIds:
    """Skips records that have a key in Redis. The key is not atomic with the effect.

    `process` first sets the key (SET with NX and PX), and then applies the effect. It guarantees:

    - While the key exists, no other process applies the effect of the record.
    - If the effect raises an exception, the key is deleted, and the record can be processed again.
    - If the process or the connection to Redis ends between these steps, the key stays, although the effect may be
      missing or incomplete. The record is skipped until the key expires. So an effect is applied at most once.
    - A record that comes again after `expiry_ms` is applied again. The same is true if Redis loses the key, for example
      by eviction or a failover.

    Use it where a lost effect is acceptable, for example for notifications. Otherwise use ProcessedOffsets or
    ProcessedIds."""

    def __init__(self, redis: Redis, *, group: str, expiry_ms: int, id_of: IdOf = _place) -> None:
        """redis: for example `redis.Redis()`. group: the name of the work, usually the consumer's group.id. expiry_ms:
        the life of a key. It must be longer than the time in which a record may come again. id_of: returns the id of a
        record, by default its topic, partition and offset.

        Raises ConfigError if expiry_ms is not above 0."""
        if expiry_ms <= 0:
            raise ConfigError(f"expiry_ms={expiry_ms}, expected a number above 0")
        self._redis = redis
        self._group = group
        self._expiry_ms = expiry_ms
        self._id_of = id_of

    def process(self, effect: Callable[[ConsumerRecord[Any, Any]], object], *records: ConsumerRecord[Any, Any]) -> int:
        """Calls `effect(record)` for each record without a key. Returns the number of these records.

        An exception of an effect is raised. The records before it are processed then,
        and it and those after it are not. Raises IllegalStateError for a record without an id."""
        count = 0
        for record in records:
            name = f"klamm:processed:{self._group}:{checked_id(self._id_of, record)}"
            if self._redis.set(name, "1", px=self._expiry_ms, nx=True):
                try:
                    effect(record)
                except BaseException:
                    self._delete(name)
                    raise
                count += 1
        return count

    def _delete(self, name: str) -> None:
        try:
            self._redis.delete(name)
        except Exception:
            # The exception of the effect tells more.
            log.exception("could not delete key=%s, so its record is skipped for %d ms", name, self._expiry_ms)

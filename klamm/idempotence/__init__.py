"""Idempotent processing of records: the effect of each record is applied to a database once.

A consumer reads a record again after a crash, a rebalance or a failed commit. The classes here store a mark for each
processed record and skip a record that has one:

ProcessedOffsets    the next offset of each partition, in the transaction of the effect. Exact.
ProcessedIds        an id of each record, in the transaction of the effect. Exact, also if a record was sent twice.
RedisProcessedIds   an id of each record in Redis, before the effect. Not atomic with the effect.

The first two accept DB-API 2.0 connections (PEP 249) to SQLite 3.24 or newer and PostgreSQL. In SQL they use
`INSERT ... ON CONFLICT`. They import no driver.
"""

from __future__ import annotations

from klamm.idempotence.database import Connection, Cursor, Effect
from klamm.idempotence.ids import IdOf, ProcessedIds
from klamm.idempotence.offsets import ProcessedOffsets
from klamm.idempotence.redis import Redis, RedisProcessedIds

__all__ = [
    "Connection",
    "Cursor",
    "Effect",
    "IdOf",
    "ProcessedIds",
    "ProcessedOffsets",
    "Redis",
    "RedisProcessedIds",
]

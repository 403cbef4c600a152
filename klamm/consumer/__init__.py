"""The consumer: subscriptions and groups, fetching, positions and commits.

Each line may import the lines below it:

threads/                               run many threads on one consumer, or one consumer for each thread
sync_consumer, async_consumer          the public classes, for threads and for asyncio
core/                                  the consumer itself: it connects the parts below
classic/ kip848/                       the membership of a group, in the classic protocol and in that of KIP-848
fetch/ offsets/                        fetches of records from brokers; committed offsets and positions
group/                                 the parts that both protocols of membership share
config, assignors/, offset_policy,     settings, assignors, and the state of subscriptions and partitions
subscription, partition_state, record, errors,
position_reset

The membership modules, heartbeat_timer, subscription, partition_state, offset_policy, position_reset, fetch_buffer,
fetched_data_reader, fetched_columns_reader, record_drain, read_replicas and work_ledger are pure.

Python loads the public names below on first use, because an Admin needs only two of these modules.
"""

from __future__ import annotations

from klamm.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(globals())

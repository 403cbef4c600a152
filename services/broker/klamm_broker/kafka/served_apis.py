"""The Kafka APIs that the broker serves. This module imports every handler, so that all of them are declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm_broker.kafka.api import APIS, ApiKey, Versions
from klamm_broker.kafka.cold import (
    acls,
    cluster,
    configs,
    consumer_groups,
    coordinators,
    groups,
    log_dirs,
    partitions,
    quotas,
    replicas,
    topic_pages,
    topics,
    transactions,
    txn_markers,
    users,
    voters,
)
from klamm_broker.kafka.hot import (
    api_versions,
    fetch,
    framed_fetch,
    framed_produce,
    framed_replica_fetch,
    metadata,
    produce,
)
from klamm_broker.kafka.login import sasl_messages

HANDLERS: Final = (
    *(acls, api_versions, cluster, configs, consumer_groups, coordinators, fetch, framed_fetch, framed_produce),
    framed_replica_fetch,
    *(groups, log_dirs, metadata, partitions, produce, quotas, replicas, sasl_messages, topic_pages, topics),
    *(transactions, txn_markers, users, voters),
)
"""The modules with the handlers."""
assert set(APIS) == set(ApiKey), set(ApiKey) ^ set(APIS)

SPOKEN: Final[Mapping[ApiKey, Versions]] = {
    key: declared.versions for key, declared in sorted(APIS.items()) if not declared.is_klamms
}
"""The versions of each API of Kafka."""

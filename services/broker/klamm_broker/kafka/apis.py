"""From a request to its answer, by API key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from klamm_broker.kafka import coordinators, messages, partitions
from klamm_broker.kafka.administration import Administration
from klamm_broker.kafka.api_versions import api_versions
from klamm_broker.kafka.cluster_view import ClusterView
from klamm_broker.kafka.connection import Parts
from klamm_broker.kafka.fetch import fetch
from klamm_broker.kafka.groups import Groups
from klamm_broker.kafka.metadata import describe_cluster, metadata
from klamm_broker.kafka.produce import produce
from klamm_broker.kafka.requests import ApiKey, Request
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_broker.kafka.transactions import Transactions
from klamm_broker.rpc.handlers import Handlers

ColdHandler = Callable[[Request, Any], Awaitable[messages.Fields]]
"""Takes a request and what kio made of it."""


class KafkaApis:
    """`handle` is what a `KafkaListener` takes."""

    def __init__(
        self,
        handlers: Handlers,
        cluster: ClusterView,
        topic_ids: TopicIds,
        groups: Groups,
        transactions: Transactions,
        administration: Administration,
    ) -> None:
        self._handlers = handlers
        self._cluster = cluster
        self._topic_ids = topic_ids
        self._cold: dict[ApiKey, ColdHandler] = {
            ApiKey.LIST_OFFSETS: partial(partitions.list_offsets, handler=handlers.list_offsets),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: partial(
                partitions.offset_for_leader_epoch, handler=handlers.offset_for_leader_epoch
            ),
            ApiKey.DELETE_RECORDS: partial(partitions.delete_records, handler=handlers.delete_records),
            ApiKey.FIND_COORDINATOR: partial(
                coordinators.find_coordinator, handler=handlers.find_coordinator, cluster=cluster
            ),
            ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
            ApiKey.END_TXN: transactions.end_txn,
            ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
            ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
            ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
            ApiKey.JOIN_GROUP: groups.join_group,
            ApiKey.SYNC_GROUP: groups.sync_group,
            ApiKey.HEARTBEAT: groups.heartbeat,
            ApiKey.LEAVE_GROUP: groups.leave_group,
            ApiKey.OFFSET_COMMIT: groups.offset_commit,
            ApiKey.OFFSET_FETCH: groups.offset_fetch,
            ApiKey.OFFSET_DELETE: groups.offset_delete,
            ApiKey.LIST_GROUPS: groups.list_groups,
            ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
            ApiKey.DELETE_GROUPS: groups.delete_groups,
            ApiKey.CREATE_TOPICS: administration.create_topics,
            ApiKey.DELETE_TOPICS: administration.delete_topics,
            ApiKey.CREATE_PARTITIONS: administration.create_partitions,
            ApiKey.DESCRIBE_CONFIGS: administration.describe_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: administration.incremental_alter_configs,
        }

    async def handle(self, request: Request) -> Parts | None:
        """The body of the answer; None: no answer. Raises MalformedRequestError, or another KlammError that ends the
        connection."""
        match request.api_key:
            case ApiKey.PRODUCE:
                written = await produce(request, self._handlers.produce)
                return None if written is None else written.parts()
            case ApiKey.FETCH:
                return (await fetch(request, self._handlers.fetch, self._topic_ids)).parts()
            case ApiKey.METADATA:
                return metadata(request, self._handlers.metadata, self._cluster, self._topic_ids).parts()
            case ApiKey.API_VERSIONS:
                return api_versions(request).parts()
            case ApiKey.DESCRIBE_CLUSTER:
                return [messages.encode(request, describe_cluster(request, self._cluster))]
        answer = await self._cold[request.api_key](request, messages.decode(request))
        return [messages.encode(request, answer)]

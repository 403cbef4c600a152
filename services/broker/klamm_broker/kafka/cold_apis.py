"""Answers requests by API key, for all APIs whose messages kio decodes and encodes.

A thread decodes a large request and encodes its answer, because each item takes some microseconds. Until the thread is
done, the event loop gets its share of the interpreter every few milliseconds. Only one large request at a time uses a
thread, so that clients cannot take all threads from the broker. The items of a large request are handled in parts
(`request_parts.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import partial
from time import thread_time
from typing import Any, Final, TypeVar

from klamm_broker.handlers.handlers import Handlers
from klamm_broker.handlers.list_offsets import LateLookup, ListedOffset
from klamm_broker.kafka import coordinators, log_dirs, messages, partitions
from klamm_broker.kafka.acls import AclApis
from klamm_broker.kafka.cluster import ClusterApis
from klamm_broker.kafka.configs import ConfigApis
from klamm_broker.kafka.connection import Parts
from klamm_broker.kafka.consumer_groups import ConsumerGroupApis
from klamm_broker.kafka.forwarding import ActiveController, Coordinators
from klamm_broker.kafka.groups import GroupApis
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.quotas import QuotaApis
from klamm_broker.kafka.replicas import ReplicaApis
from klamm_broker.kafka.request_parts import joined_answer, parts_of
from klamm_broker.kafka.requests import ApiKey, Request
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_broker.kafka.topic_pages import describe_topic_partitions
from klamm_broker.kafka.topics import TopicApis
from klamm_broker.kafka.transactions import TransactionApis
from klamm_broker.kafka.txn_markers import write_txn_markers
from klamm_broker.kafka.users import UserApis
from klamm_broker.kafka.voters import VoterApis
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.sliced_work import SlicedWork

ResultT = TypeVar("ResultT")

LARGE_BYTES: Final = 16 * 1024
"""The size from which a request is decoded in a thread, and its answer encoded."""

OffsetLookups = Generator[None, None, Sequence[ListedOffset | LateLookup]]
"""The lookups of a ListOffsets, step by step."""
ColdHandler = Callable[[Request, Any], Awaitable[messages.Fields]]
"""A handler of a request. It gets the request and its body as decoded by kio."""


class ColdApis:
    """Answers the requests that `KafkaApis` does not decode by hand, with `handle` and `list_offsets`."""

    def __init__(
        self,
        handlers: Handlers,
        controller: ActiveController,
        to_coordinators: Coordinators,
        cluster: ListenerMetadata,
        topic_ids: TopicIds,
        clock: Clock,
        slices: SlicedWork | None = None,
    ) -> None:
        self._list_offsets = handlers.list_offsets
        self._slices = slices or SlicedWork()
        self._thread = asyncio.Lock()
        """Held by the large request that uses a thread."""
        self._handlers: dict[ApiKey, ColdHandler] = {
            **_partitions(handlers),
            **_groups(GroupApis(to_coordinators, topic_ids, cluster), ConsumerGroupApis(to_coordinators, cluster)),
            **_transactions(TransactionApis(to_coordinators, cluster, topic_ids, handlers.init_producer_id)),
            **_voters(VoterApis(controller, lambda: cluster.image)),
            ApiKey.WRITE_TXN_MARKERS: partial(
                write_txn_markers, handler=handlers.write_txn_markers, coordinators=to_coordinators
            ),
            **_topics(TopicApis(controller, topic_ids), cluster),
            **_configs(ConfigApis(controller, lambda: cluster.image)),
            **_replicas(ReplicaApis(controller)),
            **_cluster(ClusterApis(controller, cluster, clock)),
            **_acls(AclApis(controller)),
            **_users(UserApis(controller, lambda: cluster.image)),
            **_quotas(QuotaApis(controller, lambda: cluster.image)),
            ApiKey.FIND_COORDINATOR: partial(
                coordinators.find_coordinator, finder=handlers.coordinator_finder, cluster=cluster
            ),
        }

    async def handle(self, request: Request) -> Parts:
        """Returns the body of the answer. Raises MalformedRequestError, or another KlammError that ends the
        connection."""
        if request.api_key is ApiKey.LIST_OFFSETS:
            parts = self.list_offsets(request)
            return parts if isinstance(parts, list) else await parts
        if len(request.frame) >= LARGE_BYTES:
            body = await self._in_thread(request, partial(messages.decode, request))
            answer = await self._handle_parts(request, body, self._handlers[request.api_key])
            return [await self._in_thread(request, partial(messages.encode, request, answer))]
        answer = await self._handlers[request.api_key](request, messages.decode(request))
        return [messages.encode(request, answer)]

    async def _handle_parts(self, request: Request, body: Any, handle: ColdHandler) -> messages.Fields:
        """Handles the items of a large request in parts, one after another. Other work runs in between."""
        answers = []
        for part in parts_of(request.api_key, body):
            answers.append(await handle(request, part))
            if answers[-1].get("error_code"):
                break
            await asyncio.sleep(0)
        return joined_answer(request.api_key, body, answers)

    async def _in_thread(self, request: Request, work: Callable[[], ResultT]) -> ResultT:
        """Returns the result of `work`, and charges the client for the time that it took."""
        async with self._thread:
            result, took_s = await asyncio.to_thread(_timed, work)
        if request.throttle is not None:
            request.throttle.charge_time(took_s)
        return result

    def list_offsets(self, request: Request) -> Parts | Coroutine[Any, Any, Parts]:
        """Returns the body of the answer to a ListOffsets, or a coroutine if there are many partitions, or many records
        to read. Raises MalformedRequestError."""
        if len(request.frame) >= LARGE_BYTES:
            return self._list_very_many_offsets(request)
        lookups = partitions.list_offsets(request, messages.decode(request), self._list_offsets)
        found = self._slices.begin(lookups)
        listed = [one for one in found or () if isinstance(one, ListedOffset)]
        if found is None or len(listed) < len(found):
            return self._list_many_offsets(request, lookups, found)
        fields = partitions.listed_fields(listed, request.version)
        answer = self._slices.begin(fields)
        return self._list_fields(request, fields) if answer is None else [messages.encode(request, answer)]

    async def _list_many_offsets(
        self, request: Request, lookups: OffsetLookups, found: Sequence[ListedOffset | LateLookup] | None
    ) -> Parts:
        """Returns the body of the answer. `found` is None if more lookups must be made."""
        if found is None:
            found = await self._slices.finish(lookups)
        answers = await self._list_offsets.finish(found)
        return await self._list_fields(request, partitions.listed_fields(answers, request.version))

    async def _list_fields(self, request: Request, fields: Generator[None, None, messages.Fields]) -> Parts:
        return [messages.encode(request, await self._slices.finish(fields))]

    async def _list_very_many_offsets(self, request: Request) -> Parts:
        body = await self._in_thread(request, partial(messages.decode, request))
        answer = await self._handle_parts(request, body, self._list_offsets_of)
        return [await self._in_thread(request, partial(messages.encode, request, answer))]

    async def _list_offsets_of(self, request: Request, body: Any) -> messages.Fields:
        found = await self._slices.finish(partitions.list_offsets(request, body, self._list_offsets))
        answers = await self._list_offsets.finish(found)
        return await self._slices.finish(partitions.listed_fields(answers, request.version))


def _timed(work: Callable[[], ResultT]) -> tuple[ResultT, float]:
    """Returns the result of `work`, and the processor time that it took in seconds."""
    began_s = thread_time()
    return work(), thread_time() - began_s


def _partitions(handlers: Handlers) -> dict[ApiKey, ColdHandler]:
    epochs, producers = handlers.offset_for_leader_epoch, handlers.describe_producers
    return {
        ApiKey.OFFSET_FOR_LEADER_EPOCH: partial(partitions.offset_for_leader_epoch, handler=epochs),
        ApiKey.DELETE_RECORDS: partial(partitions.delete_records, handler=handlers.delete_records),
        ApiKey.DESCRIBE_PRODUCERS: partial(partitions.describe_producers, handler=producers),
        ApiKey.DESCRIBE_LOG_DIRS: partial(log_dirs.describe_log_dirs, handler=handlers.log_dirs),
        ApiKey.ALTER_REPLICA_LOG_DIRS: partial(log_dirs.alter_replica_log_dirs, handler=handlers.log_dirs),
    }


def _groups(groups: GroupApis, consumer_groups: ConsumerGroupApis) -> dict[ApiKey, ColdHandler]:
    return {
        ApiKey.JOIN_GROUP: groups.join_group,
        ApiKey.SYNC_GROUP: groups.sync_group,
        ApiKey.HEARTBEAT: groups.heartbeat,
        ApiKey.LEAVE_GROUP: groups.leave_group,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_groups.heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_groups.describe,
        ApiKey.OFFSET_COMMIT: groups.offset_commit,
        ApiKey.OFFSET_FETCH: groups.offset_fetch,
        ApiKey.OFFSET_DELETE: groups.offset_delete,
        ApiKey.LIST_GROUPS: groups.list_groups,
        ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
        ApiKey.DELETE_GROUPS: groups.delete_groups,
    }


def _transactions(transactions: TransactionApis) -> dict[ApiKey, ColdHandler]:
    return {
        ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
        ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
        ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
        ApiKey.END_TXN: transactions.end_txn,
        ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
        ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
        ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
    }


def _topics(topics: TopicApis, cluster: ListenerMetadata) -> dict[ApiKey, ColdHandler]:
    return {
        ApiKey.CREATE_TOPICS: topics.create_topics,
        ApiKey.DELETE_TOPICS: topics.delete_topics,
        ApiKey.CREATE_PARTITIONS: topics.create_partitions,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: partial(describe_topic_partitions, cluster=cluster),
    }


def _configs(configs: ConfigApis) -> dict[ApiKey, ColdHandler]:
    return {
        ApiKey.DESCRIBE_CONFIGS: configs.describe,
        ApiKey.ALTER_CONFIGS: configs.alter,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.alter_incrementally,
        ApiKey.LIST_CONFIG_RESOURCES: configs.list_resources,
    }


def _replicas(replicas: ReplicaApis) -> dict[ApiKey, ColdHandler]:
    return {
        ApiKey.ELECT_LEADERS: replicas.elect_leaders,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: replicas.alter_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: replicas.list_reassignments,
    }


def _cluster(cluster: ClusterApis) -> dict[ApiKey, ColdHandler]:
    return {
        ApiKey.DESCRIBE_CLUSTER: cluster.describe,
        ApiKey.DESCRIBE_QUORUM: cluster.describe_quorum,
        ApiKey.UNREGISTER_BROKER: cluster.unregister_broker,
        ApiKey.UPDATE_FEATURES: cluster.update_features,
    }


def _acls(acls: AclApis) -> dict[ApiKey, ColdHandler]:
    return {
        ApiKey.DESCRIBE_ACLS: acls.describe,
        ApiKey.CREATE_ACLS: acls.create,
        ApiKey.DELETE_ACLS: acls.delete,
    }


def _users(users: UserApis) -> dict[ApiKey, ColdHandler]:
    return {
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: users.describe_scram_credentials,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: users.alter_scram_credentials,
    }


def _quotas(quotas: QuotaApis) -> dict[ApiKey, ColdHandler]:
    return {ApiKey.DESCRIBE_CLIENT_QUOTAS: quotas.describe, ApiKey.ALTER_CLIENT_QUOTAS: quotas.alter}


def _voters(voters: VoterApis) -> dict[ApiKey, ColdHandler]:
    return {ApiKey.ADD_RAFT_VOTER: voters.add, ApiKey.REMOVE_RAFT_VOTER: voters.remove}

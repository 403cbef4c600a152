"""Asks the transaction coordinator before a transactional produce is appended, and guards the appends until it has
answered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.records.header import BatchHeader, read_header
from klamm_broker.log.producers.verification import VerificationGuard
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.security.session import CALLER

AddPartitions = Callable[[str, int, int, Sequence[TopicPartition], bool], Awaitable[dict[TopicPartition, BrokerError]]]
"""The type of `TransactionRegistry.add`."""
Guards = dict[TopicPartition, VerificationGuard | BrokerError]
"""The guard of the append to each partition, or the error that refuses it. A partition that is already part of the
transaction has no entry."""
PRODUCERS_MAX: Final = 10_000
"""The number of producers whose transactional ids are remembered. For other producers the coordinator is asked
again."""


class TransactionGuards:
    """Makes the guards of a request with `of`, before its batches are appended.

    A batch names only its producer id, so a client could name its own transactional id and write into another
    transaction. Kafka accepts such a batch. If authorization is on, Klamm asks the coordinator whether the producer id
    belongs to the transactional id."""

    def __init__(self, replicas: ReplicaManager, add_partitions: AddPartitions) -> None:
        self._replicas = replicas
        self._add_partitions = add_partitions
        self._ids: OrderedDict[int, str] = OrderedDict()
        """The transactional id of each producer id, as a coordinator confirmed it. It never changes for a producer
        id."""

    async def of(
        self, transactional_id: str, parts: Iterable[tuple[TopicPartition, memoryview]], *, verify_only: bool
    ) -> Guards:
        """Asks the coordinator about all partitions that the transaction has not written to yet. The coordinator adds
        them to the transaction, or with `verify_only` checks that the client has added them.

        The answer may be out of date when this returns. The guards detect that."""
        guards: Guards = {}
        producers: set[tuple[int, int]] = set()
        unproven: list[TopicPartition] = []
        for partition, records in parts:
            try:
                header = read_header(records)
                guard = self._replicas.begin_verification(partition, header) if header.is_transactional else None
            except BrokerError as error:
                guards[partition] = error
                continue
            if guard is not None:
                guards[partition] = guard
                producers.add(_producer(header))
            elif header.is_transactional and not self._is_proven(transactional_id, header):
                unproven.append(partition)
                producers.add(_producer(header))
        asked = [partition for partition, guard in guards.items() if isinstance(guard, VerificationGuard)]
        if len(producers) > 1:
            mixed = ErrorCode.INVALID_PRODUCER_ID_MAPPING.exception(
                f"the request of transactional id {transactional_id!r} has batches of several producers,"
                f" {sorted(producers)}; expected one"
            )
            return guards | dict.fromkeys([*asked, *unproven], mixed)
        for producer in producers:
            guards |= await self._ask(transactional_id, producer, asked, verify_only=verify_only)
            guards |= await self._ask(transactional_id, producer, unproven, verify_only=True)
        return guards

    def _is_proven(self, transactional_id: str, header: BatchHeader) -> bool:
        return CALLER.get() is None or self._ids.get(header.producer_id) == transactional_id

    async def _ask(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> Guards:
        if not partitions:
            return {}
        refused = await self._add_partitions(transactional_id, *producer, partitions, verify_only)
        if len(refused) < len(partitions):
            self._ids[producer[0]] = transactional_id
            self._ids.move_to_end(producer[0])
            if len(self._ids) > PRODUCERS_MAX:
                self._ids.popitem(last=False)
        return {**refused}


def _producer(header: BatchHeader) -> tuple[int, int]:
    return header.producer_id, header.producer_epoch

"""What a produce of a transaction needs before it is appended: its coordinator's word, and guards until it is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.records.header import BatchHeader, read_header
from klamm_broker.log.verification import VerificationGuard
from klamm_broker.replica.replica_manager import ReplicaManager

AddPartitions = Callable[[str, int, int, Sequence[TopicPartition], bool], Awaitable[dict[TopicPartition, BrokerError]]]
"""`TransactionRegistry.add`."""
Guards = dict[TopicPartition, VerificationGuard | BrokerError]
"""By partition what to show with the append, or why it must not be; nothing where the transaction goes on."""


class TransactionGuards:
    """`of` a request, before its batches are appended."""

    def __init__(self, replicas: ReplicaManager, add_partitions: AddPartitions) -> None:
        self._replicas = replicas
        self._add_partitions = add_partitions

    async def of(
        self, transactional_id: str, parts: Iterable[tuple[TopicPartition, memoryview]], *, verify_only: bool
    ) -> Guards:
        """Asks the coordinator about every partition that the transaction has not written to yet, all at once: adds
        them, or finds out whether the client did.

        What it says may be overtaken when this returns: the guards tell."""
        guards: Guards = {}
        producers: set[tuple[int, int]] = set()
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
        asked = [partition for partition, guard in guards.items() if isinstance(guard, VerificationGuard)]
        if len(producers) > 1:
            mixed = ErrorCode.INVALID_PRODUCER_ID_MAPPING.exception(
                f"producers {sorted(producers)} in one request of transactional id {transactional_id!r}"
            )
            return guards | dict.fromkeys(asked, mixed)
        if not asked:
            return guards
        (producer,) = producers
        return guards | await self._add_partitions(transactional_id, *producer, asked, verify_only)


def _producer(header: BatchHeader) -> tuple[int, int]:
    return header.producer_id, header.producer_epoch

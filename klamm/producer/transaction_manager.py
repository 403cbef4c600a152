"""The transactions of one producer: its calls to the transaction's coordinator and to groups' coordinators.

The coordinator is asked at the beginning (`initialize`) and at the end of each transaction. In between brokers and
group coordinators tell it themselves where the transaction writes (KIP-890). Outcomes are Kafka's (TransactionManager):

    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, no answer   another coordinator is looked for
    retriable                                               again, after retry.backoff.ms
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED                 fatal: a newer producer has the transactional.id
    TRANSACTION_ABORTABLE, UNKNOWN_PRODUCER_ID; of offsets  the transaction has to be aborted
      also who is no member any more
    any other                                               fatal

`initialize`, `commit` and `abort` continue when their caller stops waiting (`max.block.ms`). The caller learns the
outcome if it calls the same method again, which waits for the same call.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from klamm.batches import BatchAbortedError, PreparedPart, verdict_error
from klamm.client_task import client_task
from klamm.cluster.client import GROUP, TRANSACTION, KlammClient
from klamm.errors import (
    EXCEPTIONS,
    CommitFailedError,
    ErrorCode,
    IllegalStateError,
    KlammError,
    raise_for,
)
from klamm.model import TopicPartition
from klamm.offsets import ConsumerGroupMetadata, OffsetAndMetadata, to_commit
from klamm.producer.accumulator import Accumulator
from klamm.producer.config import ProducerConfig
from klamm.producer.future import until_done
from klamm.producer.sender import QUICK_RETRY_MS, Sender
from klamm.producer.sequences import ProducerIdAndEpoch
from klamm.producer.transaction_state import TransactionState
from klamm.wire.calls import AnswerT, RequestT, ResponseT, Unary
from klamm.wire.v1 import broker_pb2, coordinator_pb2
from klamm.wire.v1.coordinator_rpc import CoordinatorStub

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

_ELSEWHERE: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_ABORTABLE: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID})
_NO_MEMBER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_ABORTABLE_OF_OFFSETS: Final = frozenset(
    {
        *_ABORTABLE,
        *_NO_MEMBER,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        # These codes are about the request, not about the producer.
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }
)


class _Pending(NamedTuple):
    call: str
    task: asyncio.Task[None]


class TransactionManager:
    """Runs the transactions of one producer on the client's loop; only `begin` may run elsewhere. `lock` guards the
    state and the accumulator."""

    def __init__(
        self,
        config: ProducerConfig,
        client: KlammClient,
        accumulator: Accumulator,
        sender: Sender,
        state: TransactionState,
        lock: threading.RLock,
    ) -> None:
        assert config.transactional_id is not None, "transactions without transactional.id"
        self._config = config
        self._client = client
        self._accumulator = accumulator
        self._sender = sender
        self._state = state
        self._lock = lock
        self._producer = ProducerIdAndEpoch(-1, -1)
        self._part: PreparedPart | None = None
        """The part that was prepared last."""
        self._pending: _Pending | None = None
        """An operation whose outcome no caller has received yet."""

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch that write now; (-1, -1) before `initialize`."""
        return self._producer

    # The methods of the same names as the producer's

    async def initialize(self, transactional_id: str | None) -> None:
        enter = functools.partial(self._state.begin_initializing, transactional_id)
        await self._operate("init_transactions", enter, self._initialize)

    def begin(self) -> None:
        with self._lock:
            self._refuse_while_pending("begin_transaction")
            self._state.begin()

    async def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        if not isinstance(group, ConsumerGroupMetadata):
            raise TypeError(f"group={group!r}: expected what Consumer.group_metadata() returns")
        offsets = to_commit(offsets)
        with self._lock:
            self._refuse_while_pending("send_offsets_to_transaction")
            self._state.require_open("send_offsets_to_transaction", begins=bool(offsets))
        if not offsets:
            return
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                await self._commit_offsets(offsets, group)
            return
        except TimeoutError:
            self._fail(self._timed_out("send_offsets_to_transaction"))
        except KlammError as error:
            self._fail(error)
        except BaseException:
            # The call was interrupted, so it is unknown whether the coordinator has the offsets.
            self._fail(IllegalStateError("send_offsets_to_transaction was interrupted"))
            raise
        raise self._state.failure()

    async def commit(self) -> None:
        await self._operate("commit_transaction", self._state.begin_commit, self._commit)

    async def prepare(self, run_id: str, batch_id: int) -> PreparedPart | None:
        await self._operate("prepare_transaction", self._state.begin_prepare, lambda: self._prepare(run_id, batch_id))
        return self._part

    async def abort(self) -> None:
        await self._operate("abort_transaction", self._state.begin_abort, self._abort)

    async def close(self, timeout_s: float | None) -> None:
        """Waits for the operation that is under way, and aborts an open transaction, for at most `timeout_s`
        seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                if self._pending is not None:
                    await asyncio.wait({self._pending.task})
                if self._state.is_open:
                    self._pending = None
                    await self.abort()
        except (TimeoutError, KlammError) as error:
            log.info("transactional_id=%s close=unclean reason=%r", self._state.transactional_id, error)
        finally:
            if self._pending is not None:
                self._pending.task.cancel()
                await asyncio.gather(self._pending.task, return_exceptions=True)

    # Operations that outlive their caller

    async def _operate(self, call: str, enter: Callable[[], None], run: Callable[[], Awaitable[None]]) -> None:
        with self._lock:
            self._refuse_while_pending(call)
            if self._pending is None:
                enter()
                task = client_task(self._guarded(run), name=f"klamm-{call}")
                task.add_done_callback(_retrieve_exception)
                self._pending = _Pending(call, task)
            task = self._pending.task
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                await asyncio.shield(task)
        except TimeoutError:
            raise self._timed_out(call) from None
        finally:
            if task.done():
                self._pending = None

    async def _guarded(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except KlammError:
            raise
        except Exception as error:
            log.exception("transactional_id=%s failed in the client", self._state.transactional_id)
            self._fail_fatally(error)
        else:
            return
        raise self._state.failure()

    def _refuse_while_pending(self, call: str) -> None:
        if self._pending is not None and self._pending.call != call:
            raise IllegalStateError(
                f"{call}: the outcome of the earlier call of {self._pending.call} is unknown; call that again"
            )

    def _timed_out(self, call: str) -> KlammError:
        return EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT](
            f"{call} took longer than max.block.ms={self._config.max_block_ms}"
        )

    async def _initialize(self) -> None:
        request = coordinator_pb2.InitTransactionalIdRequest(
            transactional_id=self._state.transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
        )
        response = await self._ask_until_decided(CoordinatorStub.init_producer_id, request)
        self._begin_epoch(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))

    async def _commit(self) -> None:
        await self._flush()
        await self._end(committed=True)

    async def _prepare(self, run_id: str, batch_id: int) -> None:
        await self._flush()
        self._part = None
        if self._state.has_begun:
            request = coordinator_pb2.PrepareTxnRequest(
                transactional_id=self._state.transactional_id,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                run_id=run_id,
                batch_id=batch_id,
            )
            response = await self._ask_until_decided(CoordinatorStub.prepare_txn, request)
            if response.verdict:
                error = verdict_error(response.verdict, run_id, batch_id)
                self._sender.fail_transaction(error or BatchAbortedError(f"batch {batch_id} counts without this part"))
                raise error or self._state.failure()
            self._part = PreparedPart(self._state.transactional_id, *self._producer)
        with self._lock:
            # A ledger decides how the transaction ends. The producer starts again with another id and epoch.
            self._producer = ProducerIdAndEpoch(-1, -1)
            self._state.become_prepared()

    async def _flush(self) -> None:
        with self._lock:
            results = self._accumulator.flush()
        await asyncio.gather(*map(until_done, results))
        if self._state.is_lost:
            raise self._state.failure()

    async def _abort(self) -> None:
        self._sender.abandon_waiting(self._state.failure())
        with self._lock:
            results = self._accumulator.flush()
        # Wait for requests in flight: no answer of this transaction may arrive during the next one.
        await asyncio.gather(*map(until_done, results))
        await self._end(committed=False)

    async def _end(self, *, committed: bool) -> None:
        if not self._state.has_begun:
            self._begin_epoch(self._producer)
            return
        request = coordinator_pb2.EndTxnRequest(
            transactional_id=self._state.transactional_id,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            committed=committed,
            bump_epoch=True,
        )
        response = await self._ask_until_decided(CoordinatorStub.end_txn, request)
        self._begin_epoch(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))

    def _begin_epoch(self, producer: ProducerIdAndEpoch) -> None:
        log.debug("transactional_id=%s producer_id=%d epoch=%d", self._state.transactional_id, *producer)
        with self._lock:
            self._producer = producer
            self._sender.begin_epoch(producer)
            self._state.become_ready()

    # Requests

    async def _ask_until_decided(self, rpc: Unary[CoordinatorStub, RequestT, AnswerT], request: RequestT) -> AnswerT:
        """Calls the transaction's coordinator until it answers without a retriable error. Raises
        AbortableTransactionError or FatalProducerError."""
        failures = 0
        while True:
            try:
                response = await self._ask(TRANSACTION, self._state.transactional_id, rpc, request)
                raise_for(response.error_code, response.error_message)
                return response
            except KlammError as error:
                if not error.retriable:
                    self._refused(
                        error,
                        is_abortable=_code_of(error) in _ABORTABLE and rpc is not CoordinatorStub.init_producer_id,
                    )
                    break
                failures += 1
                await self._back_off(rpc.__name__, error, failures)
        raise self._state.failure()

    async def _commit_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        waiting = dict(offsets)
        failures = 0
        while waiting:
            error = await self._try_commit_offsets(waiting, group)
            if error is not None:
                failures += 1
                await self._back_off("txn_offset_commit", error, failures)

    async def _try_commit_offsets(
        self, waiting: dict[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> KlammError | None:
        """Makes one attempt. Removes the committed offsets from `waiting`, and returns the error of the rest. Raises
        errors that are not retriable."""
        request = self._offsets_request(waiting, group)
        try:
            response = await self._ask(GROUP, group.group_id, CoordinatorStub.txn_offset_commit, request)
        except KlammError as unreached:
            if not unreached.retriable:
                raise
            return unreached
        failure: KlammError | None = None
        for partition in response.partitions:
            code = ErrorCode.of(partition.error_code)
            if code is ErrorCode.NONE:
                del waiting[TopicPartition(partition.topic, partition.partition)]
                continue
            error = code.exception(f"{partition.topic}-{partition.partition}: {partition.error_message or code.text}")
            if not error.retriable:
                raise error
            if code in _ELSEWHERE or code is ErrorCode.REQUEST_TIMED_OUT:
                self._client.forget_coordinator(group.group_id)
            failure = error
        return failure

    def _offsets_request(self, offsets: Offsets, group: ConsumerGroupMetadata) -> Any:
        return coordinator_pb2.TxnOffsetCommitRequest(
            transactional_id=self._state.transactional_id,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id or "",
            offsets=[
                coordinator_pb2.GroupOffset(
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=offset.offset,
                    leader_epoch=offset.leader_epoch,
                    metadata=offset.metadata,
                )
                for tp, offset in sorted(offsets.items())
            ],
        )

    async def _ask(
        self,
        key_type: broker_pb2.CoordinatorKeyType,
        key: str,
        rpc: Unary[CoordinatorStub, RequestT, ResponseT],
        request: RequestT,
    ) -> ResponseT:
        """Makes one call. After an error, the next call looks the coordinator up again."""
        stub = await self._client.coordinator_for(key, key_type)
        try:
            response = await rpc(stub, request)
        except KlammError:
            self._client.forget_coordinator(key, key_type)
            raise
        if getattr(response, "error_code", 0) in _ELSEWHERE:
            self._client.forget_coordinator(key, key_type)
        return response

    async def _back_off(self, method: str, error: KlammError, failures: int) -> None:
        level = logging.WARNING if failures % 10 == 5 else logging.INFO
        log.log(level, "retrying %s transactional_id=%s reason=%s", method, self._state.transactional_id, error)
        pause_ms = self._client.pause_ms(error, failures)
        if _code_of(error) is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_ms = min(pause_ms, QUICK_RETRY_MS)
        await asyncio.sleep(pause_ms / 1000)

    # Failures

    def _fail(self, error: Exception) -> None:
        """Fails the transaction after a call about offsets failed. Fails the producer if an abort would not help."""
        code = _code_of(error)
        if code is None or code in _ABORTABLE_OF_OFFSETS or getattr(error, "retriable", False):
            self._sender.fail_transaction(CommitFailedError(str(error)) if code in _NO_MEMBER else error)
        else:
            self._fail_fatally(error)

    def _fail_fatally(self, error: Exception) -> None:
        if _code_of(error) in _FENCED:
            error = EXCEPTIONS[ErrorCode.PRODUCER_FENCED](
                f"a newer producer has transactional.id={self._state.transactional_id!r}, or its coordinator ended the"
                f" transaction after transaction.timeout.ms={self._config.transaction_timeout_ms} ({error})"
            )
        self._sender.fail_producer(error)

    def _refused(self, error: KlammError, *, is_abortable: bool) -> None:
        if is_abortable and not self._state.is_lost:
            self._sender.fail_transaction(error)
        else:
            self._fail_fatally(error)


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Reads the task's exception, because there may be no caller that waits for it."""
    if not task.cancelled():
        task.exception()


def _code_of(error: Exception) -> ErrorCode | None:
    return getattr(error, "code", None)

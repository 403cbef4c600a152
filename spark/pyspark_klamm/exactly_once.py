"""The exactly-once sink: the rows of all tasks of a batch are committed together, and once.

A task writes in its own transaction and prepares it. The driver asks the batch's ledger to decide about all
transactions in one step. Before the decision, an abort is always safe, because Spark runs the batch again. After the
decision, the cluster completes the transactions by itself. If Spark repeats a decided batch, the sink recognises it
before rows are read.

A streaming query uses the ledger of its query id, which is in its checkpoint. A batch job has its own ledger with only
one batch, and deletes the ledger at its end.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from klamm import Admin
from klamm.batches import BatchRewoundError, RunFencedError
from klamm.config import ClientConfig
from klamm.errors import EXCEPTIONS, ConfigError, ErrorCode
from klamm.ledger_ids import LedgerId
from klamm.producer.config import ProducerConfig
from klamm.setting import definitions
from pyspark_klamm.batch_parts import (
    LedgerBatch,
    TaskOutput,
    common_batch,
    is_in_micro_batch,
    micro_batch,
    parts_to_commit,
)
from pyspark_klamm.client_cache import ClientCache
from pyspark_klamm.client_file import CLIENT_FILE, with_file
from pyspark_klamm.row_sender import TaskSender
from pyspark_klamm.sink import producers
from pyspark_klamm.sink_options import SinkOptions
from pyspark_klamm.spark_call import spark_call

if TYPE_CHECKING:
    import pyarrow as pa

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The transaction timeout, unless kafka.transaction.timeout.ms is set. Tasks take longer than Kafka's default of one
minute. A coordinator allows no longer timeout by default (transaction.max.timeout.ms)."""

_UNNAMED: Final = "part of a batch"
"""The transactional.id of a producer before its first task. Each task sets its own id."""

_TransactionalIdNotFoundError = EXCEPTIONS[ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]


class _ExactlyOnce:
    """The common code of the batch writer and the stream writer."""

    def __init__(self, options: SinkOptions, sender: TaskSender) -> None:
        self._options = options
        self._sender = sender
        ProducerConfig.parse(with_file(self._producer_settings(), ProducerConfig))

    def _write_part(self, batch: LedgerBatch, task: TaskContext, rows: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Writes the rows of one attempt of a task, and prepares the transaction for the driver's decision."""
        first = next((some for some in rows if some.num_rows), None)
        if first is None:
            return TaskOutput(batch, None)
        part_id = batch.ledger.part(task.partitionId(), task.attemptNumber())
        with producers.using(self._producer_settings()) as producer:
            # A producer that has prepared one task's part continues with the next task's part.
            producer.init_transactions(part_id)
            producer.begin_transaction()
            self._sender.send_all(producer, itertools.chain((first,), rows))
            return TaskOutput(batch, producer.prepare_transaction(batch.run_id, batch.batch_id))

    def _commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits the batch, on the driver. Raises IllegalStateError if a task has not answered. Without tasks, there
        is nothing to commit."""
        batch = common_batch(messages)
        parts = parts_to_commit(messages)
        if batch is not None and parts is not None:
            with _explained(batch.ledger):
                _admin(self._options.client).commit_batch(*batch, parts)

    def _producer_settings(self) -> dict[str, Any]:
        return {
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            **self._options.client,
            "transactional.id": _UNNAMED,
        }


class ExactlyOnceStreamWriter(_ExactlyOnce, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("klamm").option("deliveryGuarantee", "exactly-once")`."""

    @spark_call()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepares the rows of one task, or skips them if their batch was committed before. Runs on an executor.

        Raises RunFencedError, BatchRewoundError, or the first error of any record."""
        task = _this_task()
        batch = micro_batch(self._options.sink_id, task.getLocalProperty)
        with _explained(batch.ledger):
            if not _admin(self._options.client).register_run(*batch):
                return TaskOutput(batch, None, counts_already=True)
            return self._write_part(batch, task, iterator)

    @spark_call()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commits the batch. If this fails, Spark calls `abort` and ends the query. The query's next run writes the
        batch again."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Aborts the batch, unless it is committed. If no task has answered, the query's next run aborts the batch."""
        batch = common_batch(messages)
        if batch is not None:
            _admin(self._options.client).abort_batch(*batch)


class ExactlyOnceBatchWriter(_ExactlyOnce, DataSourceArrowWriter):
    """The writer of `df.write.format("klamm").option("deliveryGuarantee", "exactly-once")`. It commits all rows of the
    job, or none.

    Spark makes one writer when a job begins, and uses copies of it for the tasks and the commit."""

    def __init__(self, options: SinkOptions, sender: TaskSender) -> None:
        super().__init__(options, sender)
        job_id = str(uuid.uuid4())
        self._batch = LedgerBatch(LedgerId(options.sink_id, job_id), job_id, 0)
        # Registered here and not in the tasks, so that a task that outlives its job finds no ledger.
        _admin(options.client).register_run(*self._batch)

    @spark_call()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepares the rows of one task. Runs on an executor. Raises ConfigError in foreachBatch, because its batches
        may run again."""
        task = _this_task()
        if is_in_micro_batch(task.getLocalProperty):
            raise ConfigError(
                "deliveryGuarantee=exactly-once is not supported in foreachBatch, which writes again when Spark repeats"
                " a batch: use writeStream.format('klamm')"
            )
        return self._write_part(self._batch, task, iterator)

    @spark_call()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits the job's rows, and deletes its ledger."""
        self._commit(messages)
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Aborts the job's rows, unless they were committed and only the answer was lost."""
        self._forget()

    def _forget(self) -> None:
        # Deleting the ledger aborts its open transactions.
        with contextlib.suppress(_TransactionalIdNotFoundError):
            _admin(self._options.client).delete_ledger(self._batch.ledger)


def _this_task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "only tasks write"
    return task


@contextlib.contextmanager
def _explained(ledger: LedgerId) -> Iterator[None]:
    """Adds to an error what the user has to do about it."""
    name = f"{ledger.sink} {ledger.query_id}"
    try:
        yield
    except BatchRewoundError as error:
        raise BatchRewoundError(
            f"{error} Restore the checkpoint that belongs to the output; or run `klamm ledgers delete {name}` to write"
            " those batches once more."
        ) from error
    except RunFencedError as error:
        raise RunFencedError(
            f"{error} Only one run may write at a time; a query with a copy of the checkpoint needs another sinkId"
            f" than {ledger.sink!r}."
        ) from error


_admins: Final = ClientCache(Admin, ClientConfig, time.monotonic)


def _admin(settings: Mapping[str, str]) -> Admin:
    """Returns this process's admin client for the settings, of which those of producers are left out."""
    known = {*definitions(ClientConfig), CLIENT_FILE}
    return _admins.get({name: value for name, value in settings.items() if name in known})

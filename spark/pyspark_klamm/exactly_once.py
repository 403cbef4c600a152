"""The sink, exactly once: all tasks of a batch count together, and once.

A task writes in a transaction of its own and leaves it prepared; the driver has the batch's ledger decide about all of
them in one step. Before that an abort is always safe, for Spark runs the batch again; afterwards the cluster carries
the decision out by itself, and a batch that is run again is recognised before its rows are read.

A streaming query goes by the ledger of its query id, which its checkpoint keeps. A batch job is a ledger's only batch,
and the ledger goes with the job.
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
from pyspark_klamm.client_file import CLIENT_FILE, with_file
from pyspark_klamm.kept_clients import KeptClients
from pyspark_klamm.row_sender import TaskSender
from pyspark_klamm.sink import producers
from pyspark_klamm.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Unless kafka.transaction.timeout.ms says otherwise: tasks take longer than Kafka's minute, and this is the longest
that a coordinator allows by default (transaction.max.timeout.ms)."""

_UNNAMED: Final = "part of a batch"
"""The transactional.id of producers between tasks, each of which brings its own."""

_TransactionalIdNotFoundError = EXCEPTIONS[ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]


class _ExactlyOnce:
    """What batch and streaming have in common."""

    def __init__(self, options: SinkOptions, sender: TaskSender) -> None:
        self._options = options
        self._sender = sender
        ProducerConfig.parse(with_file(self._producer_settings(), ProducerConfig))

    def _write_part(self, batch: LedgerBatch, task: TaskContext, rows: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Writes the rows of one attempt of a task, for the driver to decide about."""
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
        """Commits the batch, on the driver. A task without an answer had no rows. If no task has an answer, there is
        nothing to commit."""
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
    """`df.writeStream.format("klamm").option("deliveryGuarantee", "exactly-once")`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepares the rows of one task, or skips them if their batch counts already. Runs on an executor.

        Raises RunFencedError, BatchRewoundError, or the first error of any record."""
        task = _this_task()
        batch = micro_batch(self._options.sink_id, task.getLocalProperty)
        with _explained(batch.ledger):
            if not _admin(self._options.client).register_run(*batch):
                return TaskOutput(batch, None, counts_already=True)
            return self._write_part(batch, task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Has the batch count. When it fails Spark calls `abort` and ends the query; its next run writes it again."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Gives the batch up, unless it counts. Without an answer of a task the query's next run does that."""
        batch = common_batch(messages)
        if batch is not None:
            _admin(self._options.client).abort_batch(*batch)


class ExactlyOnceBatchWriter(_ExactlyOnce, DataSourceArrowWriter):
    """`df.write.format("klamm").option("deliveryGuarantee", "exactly-once")`: all rows of the job count, or none.

    Spark makes one when a job begins, and has copies of it for the tasks and the commit."""

    def __init__(self, options: SinkOptions, sender: TaskSender) -> None:
        super().__init__(options, sender)
        job_id = str(uuid.uuid4())
        self._batch = LedgerBatch(LedgerId(options.sink_id, job_id), job_id, 0)
        # Here and not in the tasks: one that outlives its job must find no ledger to prepare for.
        _admin(options.client).register_run(*self._batch)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes a task's rows (`ExactlyOnceStreamWriter.write`). Raises ConfigError in foreachBatch, because its
        batches may run again."""
        task = _this_task()
        if is_in_micro_batch(task.getLocalProperty):
            raise ConfigError(
                "deliveryGuarantee=exactly-once is not supported in foreachBatch, which writes again when Spark repeats"
                " a batch: use writeStream.format('klamm')"
            )
        return self._write_part(self._batch, task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Has the job's rows count."""
        self._commit(messages)
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing of the job counts, unless a commit was decided of which the answer is lost."""
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
    """Says what to do about an error, where somebody has to do something."""
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


_admins: Final = KeptClients(Admin, ClientConfig, time.monotonic)


def _admin(settings: Mapping[str, str]) -> Admin:
    """The process's admin client with these settings, without those of producers."""
    known = {*definitions(ClientConfig), CLIENT_FILE}
    return _admins.get({name: value for name, value in settings.items() if name in known})

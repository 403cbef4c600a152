"""Finds the batch that a task writes, and the parts that the driver commits after the answers of all tasks.

Spark repeats a micro-batch with the same query id and batch id, but another run id. A batch ledger (`klamm.ledger_ids`)
needs these three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from klamm.batches import PARTS_MAX, PreparedPart
from klamm.errors import ConfigError, IllegalStateError
from klamm.ledger_ids import LedgerId

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_RUN_ID: Final = "spark.jobGroup.id"
"""The name of the local property with the run id. Spark sets it, and the two properties above, in every task of a
micro-batch (MicroBatchExecution, StreamExecution)."""

LocalProperty = Callable[[str], str | None]
"""Returns a local property of the task, or None. Spark's TaskContext.getLocalProperty is such a function."""


class LedgerBatch(NamedTuple):
    """One batch of a ledger, as one run of the query writes it."""

    ledger: LedgerId
    run_id: str
    batch_id: int


@dataclass(frozen=True)
class TaskOutput(WriterCommitMessage):
    """The answer of a task, which the driver needs to decide about the batch."""

    batch: LedgerBatch
    part: PreparedPart | None
    """The prepared part, or None if the task wrote nothing."""
    counts_already: bool = False
    """True if the batch was committed before. The task has then read no row."""


def micro_batch(sink_id: str, local_property: LocalProperty) -> LedgerBatch:
    """Returns the micro-batch that the task belongs to. Raises IllegalStateError if a local property is missing."""
    found = {name: local_property(name) for name in (_QUERY_ID, _RUN_ID, _BATCH_ID)}
    if missing := [name for name, value in found.items() if not value]:
        raise IllegalStateError(
            f"the task has no local property {' and '.join(missing)}, expected one in a micro-batch"
        )
    return LedgerBatch(LedgerId(sink_id, str(found[_QUERY_ID])), str(found[_RUN_ID]), int(str(found[_BATCH_ID])))


def is_in_micro_batch(local_property: LocalProperty) -> bool:
    """Returns True if the task belongs to a streaming query, also if it runs in foreachBatch."""
    return bool(local_property(_QUERY_ID))


def common_batch(messages: Sequence[WriterCommitMessage | None]) -> LedgerBatch | None:
    """Returns the batch of all outputs, or None if there is no output. Raises IllegalStateError if outputs name
    different batches."""
    batches = {message.batch for message in messages if isinstance(message, TaskOutput)}
    if len(batches) > 1:
        raise IllegalStateError(f"tasks wrote different batches: {', '.join(map(str, sorted(batches)))}")
    return batches.pop() if batches else None


def parts_to_commit(messages: Sequence[WriterCommitMessage | None]) -> list[PreparedPart] | None:
    """Returns the parts of the batch to commit, or None if the batch was committed before.

    Raises IllegalStateError if a task's answer is missing, or if only some tasks found the batch committed. Raises
    ConfigError for more than PARTS_MAX parts."""
    outputs = [message for message in messages if isinstance(message, TaskOutput)]
    if len(outputs) < len(messages):
        raise IllegalStateError(f"{len(messages) - len(outputs)} of {len(messages)} tasks returned no answer")
    answers = {output.counts_already for output in outputs}
    if len(answers) > 1:
        raise IllegalStateError("some tasks found the batch already written, but others wrote rows of the batch")
    if answers == {True}:
        return None
    parts = [output.part for output in outputs if output.part is not None]
    if len(parts) > PARTS_MAX:
        raise ConfigError(
            f"{len(parts)} tasks wrote rows of the batch, expected at most {PARTS_MAX:,}: use"
            f" coalesce({PARTS_MAX}) or less before the sink, or a smaller spark.sql.shuffle.partitions"
        )
    return parts

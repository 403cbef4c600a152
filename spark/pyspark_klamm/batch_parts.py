"""Which batch a task writes, as Spark says it, and what the driver makes of the answers of all its tasks.

Spark runs a micro-batch again under the same query id and batch id, and with another run id: what a batch ledger
(`klamm.ledger_ids`) wants to know.
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
"""Local properties of every task of a micro-batch (MicroBatchExecution, StreamExecution)."""

LocalProperty = Callable[[str], str | None]
"""TaskContext.getLocalProperty."""


class LedgerBatch(NamedTuple):
    """One batch, as one run writes it."""

    ledger: LedgerId
    run_id: str
    batch_id: int


@dataclass(frozen=True)
class TaskOutput(WriterCommitMessage):
    """What a task leaves to the driver to decide about."""

    batch: LedgerBatch
    part: PreparedPart | None
    """The prepared part, or None if the task wrote nothing."""
    counts_already: bool = False
    """The batch was written before: the task read no row."""


def micro_batch(sink_id: str, local_property: LocalProperty) -> LedgerBatch:
    """The micro-batch that the task belongs to. Raises IllegalStateError if Spark does not say."""
    found = {name: local_property(name) for name in (_QUERY_ID, _RUN_ID, _BATCH_ID)}
    if missing := [name for name, value in found.items() if not value]:
        raise IllegalStateError(
            f"the task has no local property {' and '.join(missing)}, expected one in a micro-batch"
        )
    return LedgerBatch(LedgerId(sink_id, str(found[_QUERY_ID])), str(found[_RUN_ID]), int(str(found[_BATCH_ID])))


def is_in_micro_batch(local_property: LocalProperty) -> bool:
    """Whether the task is of a streaming query, if only by way of foreachBatch."""
    return bool(local_property(_QUERY_ID))


def common_batch(messages: Sequence[WriterCommitMessage | None]) -> LedgerBatch | None:
    """The batch that all outputs are of; None: there is no output. Raises IllegalStateError if they disagree."""
    batches = {message.batch for message in messages if isinstance(message, TaskOutput)}
    if len(batches) > 1:
        raise IllegalStateError(f"tasks wrote different batches: {', '.join(map(str, sorted(batches)))}")
    return batches.pop() if batches else None


def parts_to_commit(messages: Sequence[WriterCommitMessage | None]) -> list[PreparedPart] | None:
    """Returns the parts of the batch to commit, or None if the batch was committed before.

    Raises IllegalStateError if a task's answer is missing, or tasks disagree about whether it counts; ConfigError for
    more than PARTS_MAX."""
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

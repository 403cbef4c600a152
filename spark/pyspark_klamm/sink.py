"""The at-least-once sink for batch and streaming queries. The exactly-once sink is in `exactly_once`.

A task waits until all its records are acknowledged. If a record fails, the task fails, and Spark runs it again. So no
row is lost, but a task that runs again writes its rows again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from klamm.producer.config import ProducerConfig
from pyspark_klamm.client_cache import ClientCache
from pyspark_klamm.row_sender import TaskSender
from pyspark_klamm.sink_options import SinkOptions
from pyspark_klamm.spark_call import spark_call

if TYPE_CHECKING:
    import pyarrow as pa

    from klamm import Producer


@dataclass
class Written(WriterCommitMessage):
    """The answer of a task, with the number of its acknowledged records."""

    record_count: int


class _AtLeastOnce:
    def __init__(self, options: SinkOptions, sender: TaskSender) -> None:
        self._options = options
        self._sender = sender

    @spark_call()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Produces the rows of one task and waits for their acknowledgement. Runs on an executor.

        Raises the first error of any record."""
        with producers.using(self._options.client) as producer:
            return Written(self._sender.send_all(producer, iterator))


class KlammBatchWriter(_AtLeastOnce, DataSourceArrowWriter):
    """The writer of `df.write.format("klamm")`."""

    @spark_call()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing, because the tasks' records are acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing. Written records stay written, because the sink delivers at least once."""


class KlammStreamWriter(_AtLeastOnce, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("klamm")`."""

    @spark_call()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing, because the tasks' records are acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing. Written records stay written, because the sink delivers at least once."""


def _producer(settings: Mapping[str, Any]) -> Producer:
    from klamm import Producer

    return Producer(settings)


producers: Final = ClientCache(_producer, ProducerConfig, time.monotonic)
"""The idle producers of this process, by settings."""

"""The common parts of all pipelines: their arguments, start and end, and their output while they run.

A stream runs until it has read the records that its topics hold, or for ever with --follow. SIGTERM and Ctrl-C end it
between two micro-batches. A micro-batch that takes longer than STOP_WAIT_S is interrupted, and runs again at the next
start. The exit status is 0 then, too. At the end, the pipeline prints its counters as one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

from klamm.config import DEFAULT_PORT
from klamm.errors import ConfigError, KlammError, NoBrokerError
from klamm.help_formatter import HelpFormatter, add_help_option
from klamm_pipelines.spark_errors import innermost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from klamm_pipelines.progress import ProgressListener

log = logging.getLogger(__name__)

STOP_WAIT_S: Final = 30
"""The time a micro-batch has to finish after the pipeline was asked to stop."""
USAGE: Final = 2
"""The exit status for wrong options, as in argparse."""
UNREACHABLE: Final = 3
"""The exit status when no server answers, as in other commands."""
CHECK_S: Final = 5
"""How often the pipeline checks that Spark still runs, in seconds. Spark itself reports when a query ends."""


SideTask = Callable[[], Mapping[str, Any]]
"""Does some work beside a query, and returns its counters since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline: its name, its arguments and its functions. Exactly one of `start` and `work` is given."""

    name: str
    doc: str
    """The docstring of the pipeline's module. Lists of pipelines show its first line."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    start: Callable[[SparkSession, argparse.Namespace], StreamingQuery] | None = None
    """Starts a streaming query."""
    work: Callable[[SparkSession, argparse.Namespace], Mapping[str, Any]] | None = None
    """Does a batch job, and returns its counters."""
    check: Callable[[argparse.Namespace], None] | None = None
    """Checks before Spark starts that the clusters have what the pipeline needs. Raises KlammError."""
    beside: Callable[[argparse.Namespace], SideTask] | None = None
    """Makes the task that runs beside the query, every --beside-interval seconds and at its end."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the Spark session that this pipeline needs."""

    @property
    def summary(self) -> str:
        return self.doc.partition("\n")[0]

    def parse(self, arguments: Sequence[str], *, program: str | None = None) -> argparse.Namespace:
        """Returns the options of a command line. If they are wrong, prints one line and ends the process with status
        2."""
        parser = _Parser(
            prog=program,
            usage="%(prog)s [OPTIONS]",
            description="\n\n".join(textwrap.fill(paragraph, 76) for paragraph in self.doc.split("\n\n")),
            formatter_class=HelpFormatter,
            add_help=False,
        )
        add_help_option(parser)
        _add_common_arguments(parser)
        if self.start is not None:
            _add_stream_arguments(parser, self.name)
        if self.beside is not None:
            parser.add_argument(
                "--beside-interval",
                type=float,
                default=10.0,
                metavar="SECONDS",
                help="The time between two translations of group offsets [default: %(default)s].",
            )
        self.add_arguments(parser)
        return parser.parse_args(arguments)


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line, as other commands do."""

    def error(self, message: str) -> NoReturn:
        sys.exit(_failed(f"{message} (see `{self.prog} --help`)", USAGE))


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    spark = parser.add_argument_group("Spark")
    spark.add_argument(
        "--master",
        metavar="MASTER",
        help="Spark's master: local[N], spark://..., yarn or k8s://... [default: this machine, or spark-submit's].",
    )
    spark.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="Set a Spark setting; repeatable."
    )
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument(
        "--bootstrap",
        default=os.environ.get("KLAMM_BOOTSTRAP", f"localhost:{DEFAULT_PORT}"),
        metavar="HOST:PORT",
        help="The address of a broker, or several separated by commas [env var: KLAMM_BOOTSTRAP;"
        " default: %(default)s].",
    )
    cluster.add_argument(
        "--kafka",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Set a client setting by its Kafka name; repeatable.",
    )


def _add_stream_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    stream = parser.add_argument_group("stream")
    stream.add_argument(
        "--checkpoint",
        required=True,
        metavar="DIRECTORY",
        help="The directory where the query stores its position and state; required.",
    )
    stream.add_argument("--follow", action="store_true", help="Continue forever instead of stopping at the end.")
    stream.add_argument(
        "--trigger-interval",
        default="1 second",
        metavar="TIME",
        help="The time between micro-batches [default: %(default)s].",
    )
    stream.add_argument(
        "--max-offsets-per-trigger",
        type=int,
        default=100_000,
        metavar="N",
        help="Read at most this many records in a micro-batch [default: %(default)s].",
    )
    stream.add_argument(
        "--sink-id",
        default=name,
        metavar="NAME",
        help="The name of the sink; a copy of the checkpoint needs another name [default: %(default)s].",
    )


def assignments(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Returns `["a=1"]` as a mapping. Raises ConfigError if a text is not NAME=VALUE."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{option} {pair!r}: expected NAME=VALUE")
        parsed[name] = value
    return parsed


def client_settings(options: argparse.Namespace) -> dict[str, str]:
    """Returns the settings of clients of the pipeline's cluster, by Kafka's names."""
    return {"bootstrap.servers": options.bootstrap, **assignments(options.kafka, "--kafka")}


def connector_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns clients' settings as options of `format("klamm")`."""
    return {f"kafka.{name}": value for name, value in settings.items()}


def read_stream(spark: SparkSession, options: argparse.Namespace, topics: str, columns: str) -> DataFrame:
    """Returns the stream of the topics' records with `columns` (DDL). It begins at the earliest offsets, or at the
    checkpoint."""
    return (
        spark.readStream.format("klamm")
        .options(**connector_options(client_settings(options)))
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
        .schema(columns)  # the source sends only the columns that are asked for
        .load()
    )


def write_topic(frame: DataFrame, options: argparse.Namespace, topic: str | None, **extra: str) -> DataStreamWriter:
    """Returns an exactly-once writer to `topic`, or to the topic in the column `topic` if it is None."""
    writer = (
        frame.writeStream.format("klamm")
        .options(**connector_options(client_settings(options)), **extra)
        .option("deliveryGuarantee", "exactly-once")
        .option("sinkId", options.sink_id)
        .outputMode("append")
    )
    return writer if topic is None else writer.option("topic", topic)


def started(writer: DataStreamWriter, options: argparse.Namespace, name: str) -> StreamingQuery:
    """Starts a stream's query with the checkpoint and the trigger that the options set."""
    writer = writer.option("checkpointLocation", options.checkpoint).queryName(name)
    if options.follow:
        return writer.trigger(processingTime=options.trigger_interval).start()
    return writer.trigger(availableNow=True).start()


def run(pipeline: Pipeline, arguments: Sequence[str], *, program: str | None = None) -> int:
    """Runs a pipeline to its end, and returns the exit status. An error is one line on stderr."""
    options = pipeline.parse(arguments, program=program)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        _require_spark()
        assignments(options.conf, "--conf")
        if pipeline.check is not None:
            pipeline.check(options)
        with spark_session(pipeline, options) as spark, _stop_signal() as stop:
            counted = run_in(spark, pipeline, options, stop)
    except ConfigError as error:
        return _failed(str(error), USAGE)
    except NoBrokerError as error:
        return _failed(str(error), UNREACHABLE)
    except KlammError as error:
        return _failed(str(error))
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        return _failed(f"{package} is missing: pip install 'klamm[spark]'")
    except Exception as error:  # noqa: BLE001 - Spark's errors have no base of their own; the query's is one of them
        return _failed(innermost(str(error)))
    print(json.dumps(counted))
    return 0


def run_in(
    spark: SparkSession, pipeline: Pipeline, options: argparse.Namespace, stop: threading.Event | None = None
) -> dict[str, Any]:
    """Runs a pipeline in a session to its end, or until `stop` is set. Returns its counters.

    Raises the error with which the cluster or the query ended."""
    if pipeline.work is not None:
        return dict(pipeline.work(spark, options))
    from klamm_pipelines.progress import ProgressListener

    assert pipeline.start is not None
    stop = threading.Event() if stop is None else stop
    progress = ProgressListener(pipeline.name, stop)
    spark.streams.addListener(progress)
    try:
        query = pipeline.start(spark, options)
        beside = _await_end(query, progress, pipeline, options)
    finally:
        spark.streams.removeListener(progress)
    return {**progress.totals(), **beside}


def _await_end(
    query: StreamingQuery, progress: ProgressListener, pipeline: Pipeline, options: argparse.Namespace
) -> dict[str, Any]:
    """Waits until the query has ended, and returns the counters of the side task. Raises the query's error."""
    side_task: SideTask = dict if pipeline.beside is None else pipeline.beside(options)
    interval_s = CHECK_S if pipeline.beside is None else options.beside_interval
    due_s = time.monotonic() + interval_s
    while not progress.wake.wait(max(0.0, min(CHECK_S, due_s - time.monotonic()))) and query.isActive:
        if time.monotonic() >= due_s:
            side_task()
            due_s = time.monotonic() + interval_s
    if query.isActive and not progress.ended.is_set():
        log.info("%s stops after the current micro-batch", pipeline.name)
        if query.status["isDataAvailable"]:
            progress.batch_ended.wait(STOP_WAIT_S)
        query.stop()
    query.awaitTermination()
    progress.ended.wait(STOP_WAIT_S)
    return dict(side_task())


@contextmanager
def spark_session(pipeline: Pipeline, options: argparse.Namespace) -> Iterator[SparkSession]:
    """Opens the session that the options ask for, on this machine, on a cluster, or from spark-submit. Stops it at the
    end."""
    from klamm_pipelines.session import open_session

    settings = {**pipeline.settings, **assignments(options.conf, "--conf")}
    spark = open_session(pipeline.name, options.master, settings)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stop_signal() -> Iterator[threading.Event]:
    """Provides an event that SIGTERM and Ctrl-C set. A second signal ends the process."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def on_signal(number: int, frame: object) -> None:
        for signal_number in before:
            signal.signal(signal_number, signal.SIG_DFL)
        stop.set()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _require_spark() -> None:
    """Raises ModuleNotFoundError if pyspark is missing. Does not import pyspark, because this takes a while."""
    if importlib.util.find_spec("pyspark") is None:
        raise ModuleNotFoundError("pyspark is missing", name="pyspark")


def _failed(text: str, status: int = 1) -> int:
    print(f"klamm: {text}", file=sys.stderr)
    return status

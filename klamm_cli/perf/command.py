"""The commands `klamm perf produce`, `consume` and `end-to-end`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.errors import ConfigError
from klamm_cli.console.assignments import parse_assignments
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.command_config import client_settings
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    fail,
    print_json,
    print_message,
    print_rows,
    print_sentences,
)
from klamm_cli.perf import report
from klamm_cli.perf.load import Load
from klamm_cli.perf.matrix import Cell, parse_cells
from klamm_cli.perf.own_topic import TopicShape
from klamm_cli.perf.sample import Sample, made_sample

if TYPE_CHECKING:
    from klamm import Admin
    from klamm_cli.perf.measurement import Measurement
    from klamm_cli.perf.report import Recommendation, Wish

_SEED: Final = 1
_REPLICAS: Final = 3
_OF_PRODUCERS: Final = ("acks", "batch_size", "compression", "fsync")
_OF_CONSUMERS: Final = ("batch_size", "compression")

app = new_app("Measure how fast this cluster is with your records.")

_Like = Annotated[
    str | None,
    typer.Option("--like", metavar="TOPIC", help="Send records with the keys, values and headers of this topic."),
]
_SizeBytes = Annotated[
    int | None,
    typer.Option(
        "--size",
        metavar="BYTES",
        min=1,
        max=100_000_000,
        help="Send values of this many random letters, without keys [default: 100].",
        show_default=False,
    ),
]
_Acks = Annotated[str, typer.Option("--acks", metavar="LIST", help="Measure these of all, 1 and 0.")]
_BatchSizes = Annotated[str, typer.Option("--batch-size", metavar="LIST", help="Measure these values of batch.size.")]
_Compression = Annotated[
    str, typer.Option("--compression", metavar="LIST", help="Measure these of none, gzip, snappy, lz4 and zstd.")
]
_Fsync = Annotated[
    str,
    typer.Option(
        "--fsync", metavar="LIST", help="Measure no (Kafka's default), yes (flush.messages=1 of the topic), or both."
    ),
]
_Seconds = Annotated[
    float, typer.Option("--seconds", metavar="SECONDS", min=0.1, max=3_600, help="Send for this long in each run.")
]
_Count = Annotated[
    int | None,
    typer.Option(
        "--count", "-n", metavar="NUMBER", min=1, help="Send this many records in each run, instead of --seconds."
    ),
]
_Runs = Annotated[
    int, typer.Option("--runs", metavar="NUMBER", min=1, max=100, help="Measure in turns, and show the medians.")
]
_Partitions = Annotated[
    int,
    typer.Option("--partitions", metavar="NUMBER", min=1, max=1_000, help="The number of partitions of the topic."),
]
_ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        "--replication-factor",
        "-r",
        metavar="NUMBER",
        min=1,
        help="The number of replicas of each partition [default: 3, or the number of brokers if there are fewer].",
        show_default=False,
    ),
]
_TopicConfig = Annotated[
    list[str] | None,
    typer.Option("--topic-config", metavar="NAME=VALUE", help="Set a config of the topic; repeatable."),
]
_Target = Annotated[
    float | None,
    typer.Option("--target-mb-s", metavar="MB", min=0.001, help="Recommend a topic for this many MB/s."),
]
_ConsumerRate = Annotated[
    float | None,
    typer.Option(
        "--consumer-records-s",
        metavar="NUMBER",
        min=0.001,
        help="How many records a second one consumer of your program processes, for --target-mb-s.",
    ),
]
_PRODUCER_CONFIG = typer.Option(
    "--config", metavar="NAME=VALUE", help="Set a producer setting by its Kafka name; repeatable."
)
_CONSUMER_CONFIG = typer.Option(
    "--config", metavar="NAME=VALUE", help="Set a consumer setting by its Kafka name; repeatable."
)


@app.command(
    "produce",
    epilog=examples(
        "klamm perf produce --like orders --target-mb-s 50 --consumer-records-s 900",
        "klamm perf produce --size 1000 --acks all --fsync no --compression none,zstd",
    ),
)
def produce(
    like: _Like = None,
    size_bytes: _SizeBytes = None,
    acks: _Acks = "all,1",
    batch_sizes: _BatchSizes = "16384,1000000",
    compression: _Compression = "none,lz4,zstd",
    fsync: _Fsync = "no,yes",
    seconds: _Seconds = 2.0,
    count: _Count = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="NUMBER",
            min=0.001,
            help="Send this many records a second [default: as many as possible].",
        ),
    ] = None,
    runs: _Runs = 1,
    partitions: _Partitions = 1,
    replication_factor: _ReplicationFactor = None,
    topic_config: _TopicConfig = None,
    config: Annotated[list[str] | None, _PRODUCER_CONFIG] = None,
    target_mb_s: _Target = None,
    consumer_records_s: _ConsumerRate = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Measure a producer with each combination of settings.

    The command makes topics whose names begin with klamm-perf-, and deletes them at the end. MB/s are of keys, values
    and headers before compression, and 1 MB is 1,000,000 bytes. STORED RATIO is the size of the batches, compared with
    that. The latencies are from `send` to the acknowledgement. Without --rate, they are mostly the time in the
    producer's buffer."""
    from klamm.producer.config import ProducerConfig
    from klamm_cli.perf.measuring import measure_cells
    from klamm_cli.perf.producing import measure_produce

    cells = parse_cells(acks=acks, batch_sizes=batch_sizes, compression=compression, fsync=fsync)
    settings = {**client_settings(bootstrap, ProducerConfig), **_given(config, taken=True)}
    asked = _CommonOptions(like, size_bytes, partitions, replication_factor, topic_config)
    with connected(bootstrap, timeout) as admin:
        world = _prepare(admin, bootstrap, asked, cells)
        measured = measure_cells(
            admin,
            cells,
            lambda topic, cell, load: measure_produce(settings, topic, cell, world.sample, load),
            load=Load(seconds=seconds, count=count, rate=rate),
            shape=world.shape,
            runs=runs,
        )
    recommended = None
    if target_mb_s is not None:
        wish = world.wish(target_mb_s, consumer_records_s)
        recommended = report.recommend_from_produce(measured, partitions, wish)
    _print(world, measured, _OF_PRODUCERS, recommended, as_json=as_json)


@app.command("consume", epilog=examples("klamm perf consume --like orders", "klamm perf consume --size 1000 --json"))
def consume(
    like: _Like = None,
    size_bytes: _SizeBytes = None,
    batch_sizes: _BatchSizes = "16384,1000000",
    compression: _Compression = "none,lz4,zstd",
    seconds: _Seconds = 2.0,
    count: _Count = None,
    runs: _Runs = 1,
    partitions: _Partitions = 1,
    replication_factor: _ReplicationFactor = None,
    topic_config: _TopicConfig = None,
    config: Annotated[list[str] | None, _CONSUMER_CONFIG] = None,
    target_mb_s: _Target = None,
    consumer_records_s: _ConsumerRate = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Measure a consumer that reads batches of each size and codec.

    The command makes topics whose names begin with klamm-perf-, and deletes them at the end. It fills each topic first,
    for --seconds or with --count records, and then reads it. MB/s are of keys, values and headers before compression,
    and 1 MB is 1,000,000 bytes. The latencies are those of `poll`, if it returned records."""
    from klamm.consumer.config import ConsumerConfig
    from klamm.producer.config import ProducerConfig
    from klamm_cli.perf.consuming import measure_consume
    from klamm_cli.perf.measuring import measure_cells
    from klamm_cli.perf.producing import measure_produce

    cells = parse_cells(acks="all", batch_sizes=batch_sizes, compression=compression, fsync="no")
    filling = client_settings(bootstrap, ProducerConfig)
    settings = {**client_settings(bootstrap, ConsumerConfig), **_given(config, taken=False)}
    asked = _CommonOptions(like, size_bytes, partitions, replication_factor, topic_config)
    with connected(bootstrap, timeout) as admin:
        world = _prepare(admin, bootstrap, asked, cells)

        def measure(topic: str, cell: Cell, load: Load) -> Measurement:
            filled = measure_produce(filling, topic, cell, world.sample, load)
            return measure_consume(settings, topic, partitions, filled)

        load = Load(seconds=seconds, count=count)
        measured = measure_cells(admin, cells, measure, load=load, shape=world.shape, runs=runs)
    recommended = None
    if target_mb_s is not None:
        recommended = report.recommend_from_consume(measured, world.wish(target_mb_s, consumer_records_s))
    _print(world, measured, _OF_CONSUMERS, recommended, as_json=as_json)


@app.command(
    "end-to-end",
    epilog=examples("klamm perf end-to-end --like orders --rate 500", "klamm perf end-to-end --config linger.ms=0"),
)
def end_to_end(
    like: _Like = None,
    size_bytes: _SizeBytes = None,
    acks: _Acks = "all,1",
    batch_sizes: _BatchSizes = "1000000",
    compression: _Compression = "none",
    fsync: _Fsync = "no,yes",
    seconds: _Seconds = 5.0,
    count: _Count = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="NUMBER", min=0.001, help="Send this many records a second.")
    ] = 1_000.0,
    runs: _Runs = 1,
    partitions: _Partitions = 1,
    replication_factor: _ReplicationFactor = None,
    topic_config: _TopicConfig = None,
    config: Annotated[list[str] | None, _PRODUCER_CONFIG] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Measure the time from `send` to the record in a consumer.

    The command makes topics whose names begin with klamm-perf-, and deletes them at the end. Producer and consumer run
    in this process. Each record has one more header, with its time. If RECORDS S is below --rate, the latencies are
    those of an overloaded client or cluster."""
    from klamm.consumer.config import ConsumerConfig
    from klamm.producer.config import ProducerConfig
    from klamm_cli.perf.end_to_end import measure_end_to_end
    from klamm_cli.perf.measuring import measure_cells

    cells = parse_cells(acks=acks, batch_sizes=batch_sizes, compression=compression, fsync=fsync)
    producing = {**client_settings(bootstrap, ProducerConfig), **_given(config, taken=True)}
    consuming = client_settings(bootstrap, ConsumerConfig)
    asked = _CommonOptions(like, size_bytes, partitions, replication_factor, topic_config)
    with connected(bootstrap, timeout) as admin:
        world = _prepare(admin, bootstrap, asked, cells)

        def measure(topic: str, cell: Cell, load: Load) -> Measurement:
            return measure_end_to_end(producing, consuming, topic, partitions, cell, world.sample, load)

        load = Load(seconds=seconds, count=count, rate=rate)
        measured = measure_cells(admin, cells, measure, load=load, shape=world.shape, runs=runs)
    _print(world, measured, _OF_PRODUCERS, None, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _CommonOptions:
    """The options that all commands have."""

    like: str | None
    size_bytes: int | None
    partitions: int
    replication_factor: int | None
    topic_config: list[str] | None


@dataclass(frozen=True, slots=True)
class _World:
    """What a command measures with."""

    sample: Sample
    shape: TopicShape
    broker_count: int

    def wish(self, target_mb_s: float, consumer_records_s: float | None) -> Wish:
        return report.Wish(
            target_mb_s=target_mb_s,
            consumer_records_s=consumer_records_s,
            replication_factor=self.shape.replication_factor,
            broker_count=self.broker_count,
        )


def _given(config: list[str] | None, *, taken: bool) -> dict[str, str]:
    """Returns the settings of --config. Raises ConfigError if one of them has an option of its own."""
    given = parse_assignments(config or [], "--config")
    own = {"acks": "--acks", "batch.size": "--batch-size", "compression.type": "--compression"} if taken else {}
    for name, option in own.items():
        if name in given:
            raise ConfigError(f"--config {name}: use {option}, which takes several values")
    if changed := [name for name in given if name.endswith("serializer")]:
        raise ConfigError(f"--config {changed[0]}: the records are sent and read as they are")
    return given


def _prepare(admin: Admin, bootstrap: str, asked: _CommonOptions, cells: Sequence[Cell]) -> _World:
    """Returns the sample and the shape of the topics. Ends the command if there is no sample."""
    brokers = sum(not broker.fenced for broker in admin.describe_cluster().brokers)
    shape = TopicShape(
        partitions=asked.partitions,
        replication_factor=asked.replication_factor or min(_REPLICAS, max(1, brokers)),
        configs=parse_assignments(asked.topic_config or [], "--topic-config"),
    )
    sample = _sample(admin, bootstrap, asked)
    _warn_of_small_sample(sample, cells)
    return _World(sample, shape, max(1, brokers))


def _warn_of_small_sample(sample: Sample, cells: Sequence[Cell]) -> None:
    """Says that codecs look better than they are if a batch has records of the sample twice."""
    if any(cell.compression != "none" and sample.total_bytes < cell.batch_size for cell in cells):
        print_message(
            f"klamm: the sample has {sample.total_bytes:,} B, which is less than a batch: its records compress better"
            " than yours"
        )


def _sample(admin: Admin, bootstrap: str, asked: _CommonOptions) -> Sample:
    if asked.like is None:
        return made_sample(100 if asked.size_bytes is None else asked.size_bytes, random.Random(_SEED))
    if asked.size_bytes is not None:
        fail("--like and --size exclude each other", ExitStatus.USAGE)
    from klamm.consumer.config import ConsumerConfig
    from klamm_cli.perf.sample_reader import read_sample

    sample = read_sample(admin, client_settings(bootstrap, ConsumerConfig), asked.like)
    if sample is None:
        fail(f"topic {asked.like} has no records to measure with; use --size", ExitStatus.FAILED)
    return sample


def _print(
    world: _World,
    measured: Sequence[Measurement],
    settings: tuple[str, ...],
    recommended: Recommendation | None,
    *,
    as_json: bool,
) -> None:
    columns = (*settings, *report.FIGURES)
    rows = [report.row(measurement, settings) for measurement in measured]
    if not as_json:
        print_rows(columns, [[_shown(cell) for cell in row] for row in rows], as_json=False)
        if recommended is not None:
            print_sentences(*report.sentences(recommended))
        return
    document: dict[str, Any] = {
        "record_bytes": round(world.sample.mean_bytes, 1),
        "partitions": world.shape.partitions,
        "replication_factor": world.shape.replication_factor,
        "measurements": [dict(zip(columns, row, strict=True)) for row in rows],
    }
    if recommended is not None:
        document["recommendation"] = report.document_of(recommended)
    print_json(document)


def _shown(cell: Any) -> Any:
    return {True: "yes", False: "no"}[cell] if isinstance(cell, bool) else cell

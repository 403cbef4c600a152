"""The rows that `klamm perf` prints, and what it recommends. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from klamm_cli.perf.matrix import ACKS
from klamm_cli.perf.measurement import Measurement
from klamm_cli.sizing import Need, Size, size_of
from klamm_cli.text.amounts import counted

FIGURES: Final = ("records_s", "mb_s", "stored_ratio", "p50_ms", "p99_ms")
_AS_FAST: Final = 0.9
"""Two settings count as equally fast if one of them reaches this share of the rate of the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user wants of a topic."""

    target_mb_s: float
    consumer_records_s: float | None
    replication_factor: int
    broker_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The settings to use for a topic and its producers."""

    measurement: Measurement
    """The measurement whose settings are recommended."""
    need: Need
    size: Size
    producers: int | None
    """The number of producers like the measured one that reach the target. None if no producer was measured."""


def row(measurement: Measurement, settings: Sequence[str]) -> tuple[Any, ...]:
    """Returns the named settings of the measurement's cell, and its figures in the order of FIGURES."""
    cell = asdict(measurement.cell)
    return (
        *(cell[name] for name in settings),
        round(measurement.records_s),
        round(measurement.mb_s, 2),
        round(measurement.stored_ratio, 2),
        _ms(measurement.p50_ms),
        _ms(measurement.p99_ms),
    )


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def best(measurements: Sequence[Measurement]) -> Measurement:
    """Returns the measurement whose settings to use.

    Only the safest measured acks count. Measurements with fsync count only if all have it, because acks=all is safe
    without it. Among the measurements that are nearly as fast as the fastest, the one with the fewest stored bytes
    wins."""
    acks = min((measurement.cell.acks for measurement in measurements), key=ACKS.index)
    fsync = all(measurement.cell.fsync for measurement in measurements)
    safe = [
        measurement for measurement in measurements if (measurement.cell.acks, measurement.cell.fsync) == (acks, fsync)
    ]
    fastest = max(measurement.mb_s for measurement in safe)
    fast = [measurement for measurement in safe if measurement.mb_s >= fastest * _AS_FAST]
    return min(fast, key=lambda measurement: (round(measurement.stored_ratio, 1), -measurement.mb_s))


def recommend_from_produce(measurements: Sequence[Measurement], partitions: int, wish: Wish) -> Recommendation:
    """Recommends settings by the rates of a producer that wrote to `partitions`."""
    chosen = best(measurements)
    need = _need(chosen, wish, chosen.mb_s / partitions, wish.consumer_records_s)
    producers = math.ceil(wish.target_mb_s / chosen.mb_s)
    return Recommendation(measurement=chosen, need=need, size=size_of(need), producers=producers)


def recommend_from_consume(measurements: Sequence[Measurement], wish: Wish) -> Recommendation:
    """Recommends settings by the rates of a consumer. A consumer of the user counts as fast as the wish says, but not
    faster than the measured one."""
    chosen = best(measurements)
    rate = min(chosen.records_s, wish.consumer_records_s or chosen.records_s)
    need = _need(chosen, wish, None, rate)
    return Recommendation(measurement=chosen, need=need, size=size_of(need), producers=None)


def _need(chosen: Measurement, wish: Wish, partition_mb_s: float | None, consumer_records_s: float | None) -> Need:
    return Need(
        target_mb_s=wish.target_mb_s,
        record_bytes=chosen.size_bytes / chosen.records,
        partition_mb_s=partition_mb_s,
        consumer_records_s=consumer_records_s,
        replication_factor=wish.replication_factor,
        broker_count=wish.broker_count,
        stored_ratio=chosen.stored_ratio,
    )


def sentences(recommendation: Recommendation) -> list[str]:
    """Returns the recommendation in words, with a command that computes the disk and the network."""
    need, size, cell = recommendation.need, recommendation.size, recommendation.measurement.cell
    consumers = "" if need.consumer_records_s is None else f" and consumers of {need.consumer_records_s:,.0f} records/s"
    replicas = counted(need.replication_factor, "replica")
    partitions = counted(size.partitions, "partition")
    lines = [f"{need.target_mb_s:,g} MB/s{consumers}: {partitions}, {cell.compression}, {replicas}"]
    if need.partition_mb_s is not None and recommendation.producers is not None:
        lines.append(
            f"producers need {counted(size.partitions_for_producers, 'partition')}: one carries"
            f" {need.partition_mb_s:,.1f} MB/s with {cell.describe()}; the target takes"
            f" {counted(recommendation.producers, 'producer')} like this one"
        )
    if need.consumer_records_s is not None:
        lines.append(
            f"consumers need {counted(size.partitions_for_consumers, 'partition')}: the target is"
            f" {size.records_s:,.0f} records/s of {need.record_bytes:,.0f} B"
        )
    return [*lines, f"disk and network: {_size_command(need)}"]


def _size_command(need: Need) -> str:
    options = {
        "--target-mb-s": need.target_mb_s,
        "--record-bytes": need.record_bytes,
        "--partition-mb-s": need.partition_mb_s,
        "--consumer-records-s": need.consumer_records_s,
        "--stored-ratio": need.stored_ratio,
        "--replication-factor": need.replication_factor,
        "--brokers": need.broker_count,
    }
    given = " ".join(f"{name} {round(value, 2):.12g}" for name, value in options.items() if value is not None)
    return f"klamm topics size {given} --retention 7d"


def document_of(recommendation: Recommendation) -> dict[str, Any]:
    """Returns the recommendation for scripts."""
    cell = asdict(recommendation.measurement.cell)
    need = {name: value for name, value in asdict(recommendation.need).items() if name != "retention_s"}
    size = {name: value for name, value in asdict(recommendation.size).items() if name != "disk_bytes"}
    return {**cell, **need, **size, "producers": recommendation.producers}

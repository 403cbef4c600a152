"""This process's instruments in Prometheus' format; `metrics_server.py` serves them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from klamm_server.metrics.instruments import FAMILIES, Counter, Family, Gauge, Histogram, Readings


class _Instruments(Collector):
    """Converts FAMILIES to prometheus_client's metrics."""

    def collect(self) -> Iterator[Metric]:
        truncated = GaugeMetricFamily(
            "klamm_metrics_truncated", "1: there are more series of this metric than are shown.", labels=["metric"]
        )
        for family in list(FAMILIES):
            if isinstance(family, Readings):
                yield _read(family, truncated)
            else:
                yield from (metric for metric in _collected(family) if metric.samples)
        yield truncated


def _collected(family: Family[Any]) -> tuple[Metric, ...]:
    counted = CounterMetricFamily(family.name, family.text, labels=family.label_names)
    gauged = GaugeMetricFamily(family.name, family.text, labels=family.label_names)
    spread = HistogramMetricFamily(family.name, family.text, labels=family.label_names)
    for values, instrument in family.instruments():
        if isinstance(instrument, Counter):
            counted.add_metric(values, instrument.value)
        elif isinstance(instrument, Gauge):
            gauged.add_metric(values, instrument.value)
        else:
            spread.add_metric(values, _buckets(instrument), instrument.sum)
    return counted, gauged, spread


def _read(readings: Readings, truncated: GaugeMetricFamily) -> Metric:
    shown, has_more = readings.read()
    truncated.add_metric([readings.name], has_more)
    metric = GaugeMetricFamily(readings.name, readings.text, labels=readings.label_names)
    for values, value in shown:
        metric.add_metric(values, value)
    return metric


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(str, histogram.buckets), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def registry() -> CollectorRegistry:
    """Returns the registry for `/metrics`: this process's instruments, and prometheus_client's own metrics of
    processes."""
    registry = CollectorRegistry()
    registry.register(_Instruments())
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry

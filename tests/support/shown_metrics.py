"""The names of the metrics that exist: those of Klamm's servers, those of Prometheus itself, and those that its rules
record."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from klamm_server.metrics.instruments import FAMILIES, Counter, Family, Gauge, Readings
from klamm_server.metrics.prometheus import registry
from tools.reference.metrics import MEASURING

_RULES = Path(__file__).resolve().parents[2] / "deploy" / "monitoring" / "prometheus" / "rules"
OF_PROMETHEUS = {"up", "ALERTS", "scrape_duration_seconds", "scrape_samples_scraped"}
RECORDED = {
    rule["record"]
    for path in _RULES.glob("*.yml")
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
    if "record" in rule
}


@cache
def shown_metrics() -> set[str]:
    """Returns the metrics that Klamm's servers and Prometheus itself show, whether or not a series of them exists
    now."""
    for module in MEASURING:
        importlib.import_module(module)
    names = {sample.name for metric in registry().collect() for sample in metric.samples}
    for family in FAMILIES:
        names |= set(_samples(family))
    return names | OF_PROMETHEUS


def _samples(family: Family[Any] | Readings) -> Iterator[str]:
    kind = Gauge if isinstance(family, Readings) else family.kind
    if kind is Gauge:
        yield family.name
    elif kind is Counter:
        yield f"{family.name}_total"
    else:
        yield from (f"{family.name}_{part}" for part in ("bucket", "count", "sum"))

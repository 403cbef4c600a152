"""Tests that deploy/monitoring watches every server of compose.yaml, uses only metrics that exist, and tests each
alert.

`tests/integration/operations/test_promtool.py` runs the tests of the alerts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.promql import metric_names
from tests.support.shown_metrics import RECORDED, shown_metrics
from tools.reference.metrics import MEASURING

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
PROMETHEUS = DEPLOY / "monitoring" / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
METRICS_PORT = 9404


class Rule(NamedTuple):
    """A rule of a rules file."""

    file: str
    fields: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.fields.get("alert") or self.fields["record"])


def rules() -> Iterator[Rule]:
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for fields in group["rules"]:
                yield Rule(path.stem, fields)


ALERTS = [rule for rule in rules() if "alert" in rule.fields]


def test_every_module_that_creates_metrics_is_listed() -> None:
    services = DEPLOY.parent / "services"
    makes = re.compile(
        r"\b(?:counters?|gauges?|histograms?|Readings)\($|\b(?:counters?|gauges?|histograms?|Readings)\(\""
    )
    found = {
        ".".join(path.relative_to(services).parts[1:]).removesuffix(".py")
        for path in services.rglob("*.py")
        if any(makes.search(line) for line in path.read_text().splitlines() if not line.lstrip().startswith("def "))
    }
    assert found - {"klamm_server.metrics.instruments"} == set(MEASURING)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("up == 0 and on (cluster) count by (cluster) (up == 1)", {"up"}),
        ('rate(a_total{error=~"X|by (y)", b="{c}"}[5m]) > 1e3', {"a_total"}),
        ("max by (x) (a:b:c) - on (x) group_right (y) sum without (z) (d offset 5m)", {"a:b:c", "d"}),
        ("histogram_quantile(0.99, sum by (le) (rate(h_bucket[$__rate_interval]))) or vector(0)", {"h_bucket"}),
        ("predict_linear(f[6h], 24 * 3600) < 0 unless bool_metric", {"f", "bool_metric"}),
    ],
)
def test_metric_names_are_found_in_promql_expressions(expression: str, names: set[str]) -> None:
    assert metric_names(expression) == names


@pytest.mark.parametrize("rule", list(rules()), ids=lambda rule: rule.name)
def test_monitoring_rules_use_only_existing_metrics(rule: Rule) -> None:
    names = metric_names(rule.fields["expr"])
    assert names
    assert names <= shown_metrics() | RECORDED


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule.name)
def test_every_alert_has_a_description_and_tests_of_firing_and_not_firing(rule: Rule) -> None:
    fields = rule.fields
    assert fields["labels"]["severity"] in {"info", "warning", "critical"}
    assert len(fields["annotations"]["summary"]) < 120
    assert len(fields["annotations"]["description"]) > 40
    tests = yaml.safe_load((PROMETHEUS / "tests" / f"{rule.file}.yml").read_text())["tests"]
    asked = f'ALERTS{{alertname="{rule.name}",alertstate="firing"}}'
    found = [one["exp_samples"] for test in tests for one in test["promql_expr_test"] if one["expr"] == asked]
    assert sorted(map(len, found)) == [0, 1], "once it fires, once it does not"
    (fires,) = next(samples for samples in found if samples)
    labels = set(re.findall(r"(\w+)=", fires["labels"]))
    used = set(re.findall(r"\$labels\.(\w+)", json.dumps(fields["annotations"])))
    assert used <= labels, "a label that the alert does not have would be left empty"


def test_every_server_of_compose_is_scraped_and_nothing_else() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    shown = {
        name: service for name, service in services.items() if service.get("environment", {}).get("KLAMM_METRICS_PORT")
    }
    # Secured servers serve their metrics to their own machine only.
    servers = {name: one for name, one in shown.items() if one["profiles"] != ["secure"]}
    assert {server["environment"]["KLAMM_METRICS_PORT"] for server in servers.values()} == {str(METRICS_PORT)}
    jobs = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    always, small = set(), set()
    for job in jobs:
        for static in job["static_configs"]:
            always |= {(job["job_name"], target) for target in static["targets"]}
        for looked_up in job["dns_sd_configs"]:
            assert looked_up["port"] == METRICS_PORT
            small |= {(job["job_name"], f"{name}:{METRICS_PORT}") for name in looked_up["names"]}
    expected = {
        name: (server["command"].removeprefix("klamm-"), f"{name}:{METRICS_PORT}") for name, server in servers.items()
    }
    assert always == {target for name, target in expected.items() if "small" not in servers[name]["profiles"]}
    assert small == {target for name, target in expected.items() if "small" in servers[name]["profiles"]}

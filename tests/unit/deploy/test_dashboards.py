"""Tests that Grafana's dashboards are built from their sources, use existing metrics, and are where Grafana looks."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.support.promql import metric_names
from tests.support.shown_metrics import RECORDED, shown_metrics

ROOT = Path(__file__).resolve().parents[3]
GRAFANA = ROOT / "deploy" / "monitoring" / "grafana"
NAMES = ["broker", "cluster", "raft", "spark", "topics"]


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_dashboards", ROOT / "tools" / "build_dashboards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _dashboard(name: str) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads((GRAFANA / "dashboards" / f"{name}.json").read_text())
    return dashboard


def _targets(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in dashboard["panels"]:
        yield from panel.get("targets", ())


def test_every_dashboard_has_a_source_and_its_own_uid() -> None:
    for folder, suffix in (("source", "yml"), ("dashboards", "json")):
        assert sorted(path.name for path in (GRAFANA / folder).iterdir()) == [f"{name}.{suffix}" for name in NAMES]
    assert len({_dashboard(name)["uid"] for name in NAMES}) == len(NAMES)


def test_the_dashboards_equal_the_build_of_their_sources(builder: ModuleType) -> None:
    for name, source in builder.sources():
        made = builder.text(builder.build(name, source))
        is_made = made == (GRAFANA / "dashboards" / f"{name}.json").read_text()
        assert is_made, f"run python tools/build_dashboards.py: {name}.json is not what source/{name}.yml says"


@pytest.mark.parametrize("name", NAMES)
def test_every_dashboard_query_uses_existing_metrics(name: str) -> None:
    dashboard = _dashboard(name)
    asked = [target["expr"] for target in _targets(dashboard)]
    asked += [
        variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0]
        for variable in _variables(dashboard)
    ]
    for expression in asked:
        names = metric_names(expression)
        assert names, expression
        assert names <= shown_metrics() | RECORDED, expression


@pytest.mark.parametrize("name", NAMES)
def test_every_dashboard_query_filters_by_cluster_and_uses_defined_variables(name: str) -> None:
    dashboard = _dashboard(name)
    variables = {f"${variable['name']}" for variable in _variables(dashboard)}
    for target in _targets(dashboard):
        assert 'cluster="$cluster"' in target["expr"]
        unknown = set(_dollars(target["expr"])) - variables - {"$__rate_interval", "$__range"}
        assert not unknown, target["expr"]


@pytest.mark.parametrize("name", NAMES)
def test_dashboard_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    panels = _dashboard(name)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_nobody_can_log_in_at_grafana_with_its_default_password() -> None:
    """CLUSTER_BIND may open its port to other machines."""
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    environment = services["grafana"]["environment"]
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    mounts = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    assert mounts["./monitoring/grafana/provisioning"] == "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/klamm.yml").read_text())["providers"]
    assert provider["options"]["path"] == mounts["./monitoring/grafana/dashboards"]
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert services["prometheus"]["volumes"][0] == "./monitoring/prometheus:/etc/prometheus:ro"
    scraped = yaml.safe_load((ROOT / "deploy/monitoring/prometheus/prometheus.yml").read_text())["global"]
    assert source["jsonData"]["timeInterval"] == scraped["scrape_interval"]
    for name in NAMES:
        dashboard = _dashboard(name)
        used = [*_targets(dashboard), *_variables(dashboard)]
        assert {json.dumps(one["datasource"]) for one in used} == {
            json.dumps({"type": "prometheus", "uid": source["uid"]})
        }


def _variables(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dashboard["templating"]["list"]
    return found


def _dollars(expression: str) -> Iterator[str]:
    for part in expression.split("$")[1:]:
        end = next((at for at, letter in enumerate(part) if not (letter.isalnum() or letter == "_")), len(part))
        yield f"${part[:end]}"

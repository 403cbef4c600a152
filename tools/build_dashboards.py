"""Makes Grafana's dashboards from what is particular about them: titles, queries, units.

deploy/monitoring/grafana/source/*.yml -> ../dashboards/*.json

A source has `title`, `variables` (VARIABLES), and `rows` of `panels`. A panel: `title`, `queries` ("expression |
legend"), and if need be `about`, `unit` (Grafana's names), `type` (a key of TYPES), `width` (of 24 columns), `colours`
(from which value on which), `least` (of its axis; 0), `may_be_empty` (tests need not find a series).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

GRAFANA: Final = Path(__file__).resolve().parents[1] / "deploy" / "monitoring" / "grafana"
COLUMNS: Final = 24
HEIGHT: Final = {"stat": 4}
WIDTH: Final = {"stat": 3}
DATASOURCE: Final = {"type": "prometheus", "uid": "prometheus"}
TYPES: Final = {"timeseries": "timeseries", "stat": "stat", "table": "table", "timeline": "state-timeline"}
VARIABLES: Final = {
    "cluster": "label_values(up, cluster)",
    "broker": 'label_values(klamm_broker_partitions{cluster="$cluster"}, instance)',
    "topic": 'label_values(klamm_broker_log_size_bytes{cluster="$cluster"}, topic)',
    "group": 'label_values(klamm_coordinator_group_offset{cluster="$cluster"}, group)',
    "sink": 'label_values(klamm_coordinator_ledger_committed_batch{cluster="$cluster"}, sink)',
}


def build(name: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """Builds a dashboard. `name` is the name of its file."""
    return {
        "uid": f"klamm-{name}",
        "title": f"Klamm / {source['title']}",
        "tags": ["klamm"],
        "schemaVersion": 41,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["klamm"], "title": "Klamm", "asDropdown": True, "keepTime": True}],
        "templating": {"list": [_variable(one) for one in source["variables"]]},
        "panels": list(_panels(source["rows"])),
    }


def _variable(name: str) -> dict[str, Any]:
    query = VARIABLES[name]
    variable = {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }
    if name == "cluster":
        return variable
    several = {"multi": True, "includeAll": True, "current": {"text": ["All"], "value": ["$__all"]}}
    # Of thousands of topics an expression that names all would be too long; of instances not all are brokers.
    return {**variable, **several} if name == "broker" else {**variable, **several, "allValue": ".*"}


def _panels(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Left to right, in lines of panels of one height."""
    number, top = 0, 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": row["title"], "collapsed": False, "gridPos": place, "panels": []}
        top, left, line = top + 1, 0, 0
        for panel in row["panels"]:
            number += 1
            kind = panel.get("type", "timeseries")
            width, height = panel.get("width", WIDTH.get(kind, 8)), HEIGHT.get(kind, 8)
            if left + width > COLUMNS or (left and height != line):
                top, left = top + line, 0
            yield _panel(number, panel, {"x": left, "y": top, "w": width, "h": height})
            left, line = left + width, height
        top += line


def _panel(number: int, panel: Mapping[str, Any], place: dict[str, int]) -> dict[str, Any]:
    kind = panel.get("type", "timeseries")
    defaults: dict[str, Any] = {"unit": panel.get("unit", "short"), "min": panel.get("least", 0)}
    if "colours" in panel:
        steps = [{"value": value or None, "color": colour} for value, colour in sorted(panel["colours"].items())]
        defaults |= {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
    if kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 8, "showPoints": "never"}
    return {
        "id": number,
        "type": TYPES[kind],
        "title": panel["title"],
        "description": panel.get("about", ""),
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(kind),
        "targets": [_target(index, text, kind) for index, text in enumerate(panel["queries"])],
    }


def _options(kind: str) -> dict[str, Any]:
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background_solid", "graphMode": "none"}
    if kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {"showHeader": True} if kind == "table" else {"mergeValues": True, "showValue": "auto"}


def _target(index: int, text: str, kind: str) -> dict[str, Any]:
    expression, _, legend = text.partition(" | ")
    target = {"refId": chr(ord("A") + index), "datasource": DATASOURCE, "expr": expression, "legendFormat": legend}
    is_instant = kind in ("stat", "table")
    return {
        **target,
        "instant": is_instant,
        "range": not is_instant,
        "format": "table" if kind == "table" else "time_series",
    }


def sources() -> Iterator[tuple[str, dict[str, Any]]]:
    """The dashboards by the names of their files."""
    for path in sorted((GRAFANA / "source").glob("*.yml")):
        yield path.stem, yaml.safe_load(path.read_text())


def text(dashboard: Mapping[str, Any]) -> str:
    """The text of the dashboard's file."""
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, source in sources():
        (GRAFANA / "dashboards" / f"{name}.json").write_text(text(build(name, source)))

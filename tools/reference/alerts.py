"""The page of alerts, read from Prometheus' rules in `deploy/monitoring`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tools.reference.markdown import prose

RULES: Final = Path(__file__).resolve().parents[2] / "deploy" / "monitoring" / "prometheus" / "rules"
_TITLES: Final = {
    "cluster": "The cluster",
    "raft": "Controllers",
    "broker": "Brokers",
    "coordinator": "Coordinators",
    "lag": "Groups",
}
"""The sections by the names of the files."""
_TEMPLATE: Final = re.compile(r"\{\{ *\$(?:labels\.)?(\w+)[^}]*\}\}")

HEAD: Final = """# Alerts

This page lists each alert with its cause and its remedy. It is made from the rules in
`deploy/monitoring/prometheus/rules` (`python -m tools.reference`); promtool tests each of them. An alert of severity
*critical* means that clients are
refused or that data is in danger: look at once. A *warning* can wait for the morning.

Prometheus fills in the words in capitals. VALUE is the value of the expression.
"""


def page() -> str:
    """The whole text."""
    lines = [HEAD]
    for stem, title in _TITLES.items():
        lines += [f"## {title}", ""]
        for rule in _rules(RULES / f"{stem}.yml"):
            lines += _alert(rule) if "alert" in rule else _recorded(rule)
    return "\n".join(lines).rstrip("\n") + "\n"


def _rules(path: Path) -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


def _alert(rule: dict[str, Any]) -> list[str]:
    after = f" after {rule['for']}" if "for" in rule else ""
    said = rule["annotations"]
    head = [
        f"### {rule['alert']}",
        "",
        f"*{rule['labels']['severity'].capitalize()}*{after}: {_filled(said['summary'])}.",
    ]
    return [*head, "", _filled(said["description"]), "", *_expression(rule)]


def _recorded(rule: dict[str, Any]) -> list[str]:
    return [f"### {rule['record']}", "", "No alert: a series that others are made from.", "", *_expression(rule)]


def _expression(rule: dict[str, Any]) -> list[str]:
    return ["```promql", rule["expr"].rstrip("\n"), "```", ""]


def _filled(text: str) -> str:
    """An annotation with the names of what its templates stand for."""
    return prose(" ".join(_TEMPLATE.sub(lambda match: match[1].upper(), text).split()))

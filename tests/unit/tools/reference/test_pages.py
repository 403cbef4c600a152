"""The generated pages of the reference have everything that they are about.

`tests/integration/processes/test_reference_pages.py` tests that they are up to date."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.setting import definitions
from klamm_cli.app import COMMANDS
from klamm_server.config.server_config import known_configs
from klamm_server.config.topic_configs import TOPIC_CONFIGS
from tests.support.cli_runner import KlammCommand
from tools.reference.alerts import RULES
from tools.reference.remedies import NOT_SENT, REMEDIES

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "docs" / "reference"
klamm_command = KlammCommand("nobody:1")


@cache
def page(name: str) -> str:
    return (FOLDER / name).read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_section(name: str) -> None:
    listed = klamm_command(name, "--help").out.partition("\nCommands:\n")[2]
    subcommands = re.findall(r"^  ([a-z][a-z-]*) ", listed, re.MULTILINE)
    for words in (f"## klamm {name}", *(f"### klamm {name} {subcommand}" for subcommand in subcommands)):
        assert f"\n{words}\n" in page("command-line.md")


@pytest.mark.parametrize("contract", [path.stem for path in (ROOT / "proto" / "klamm" / "v1").glob("*.proto")])
def test_every_call_and_message_of_a_contract_is_in_its_page(contract: str) -> None:
    source = (ROOT / "proto" / "klamm" / "v1" / f"{contract}.proto").read_text()
    text = page(f"grpc/{contract}.md")
    for service in re.findall(r"^service (\w+)", source, re.MULTILINE):
        assert f"\n## Service {service}\n" in text
    for call in re.findall(r"^  rpc (\w+)", source, re.MULTILINE):
        assert f"\n| `{call}` | " in text
    for message in re.findall(r"^(?:message|enum) (\w+)", source, re.MULTILINE):
        assert f"\n### {message}\n" in text


def test_every_metric_is_in_the_metrics_page() -> None:
    # The names come from the sources, because other tests of this process create instruments too.
    made = re.compile(r"\b(?:counters?|gauges?|histograms?|Readings)\(\s*\"(klamm_\w+)\"")
    names = {name for path in (ROOT / "services").rglob("*.py") for name in made.findall(path.read_text())}
    text = page("metrics.md")
    assert "klamm_broker_in_bytes" in names
    assert not [name for name in names if f"\n| `{name}` " not in text and f"\n| `{name}_total` " not in text]


def test_every_alert_and_recording_rule_has_a_heading_in_the_alerts_page() -> None:
    rules = [
        rule
        for path in RULES.glob("*.yml")
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]
    for rule in rules:
        assert f"\n### {rule.get('alert') or rule['record']}\n" in page("alerts.md")


@pytest.mark.parametrize("code", EXCEPTIONS, ids=lambda code: code.name)
def test_every_error_code_is_in_the_errors_page_with_a_remedy_or_as_never_sent(code: ErrorCode) -> None:
    if code in NOT_SENT:
        assert f"{code.name} ({code.value})" in page("errors.md")
    else:
        assert f"\n| {code.value} | `{code.name}`<br>" in page("errors.md")


def test_error_codes_that_are_documented_as_never_sent_are_used_by_no_server() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "services").rglob("*.py"))
    assert not [code.name for code in NOT_SENT if re.search(rf"\b{code.name}\b", sources)]


def test_the_settings_that_remedies_name_exist() -> None:
    known = {*TOPIC_CONFIGS}
    for module, owner in (
        ("klamm.config", "ClientConfig"),
        ("klamm.producer.config", "ProducerConfig"),
        ("klamm.consumer.config", "ConsumerConfig"),
    ):
        known |= {*definitions(getattr(importlib.import_module(module), owner))}
    for module, owner in (
        ("klamm_server.config.broker_configs", "BrokerConfig"),
        ("klamm_controller.config", "ControllerConfig"),
        ("klamm_coordinator.config", "CoordinatorConfig"),
    ):
        known |= {*known_configs(getattr(importlib.import_module(module), owner))}
    prose = re.sub(r"\([^)]*\.md\)", "", "\n".join(REMEDIES.values()))
    named = set(re.findall(r"(?<![\w.])[a-z]+(?:\.[a-z]+)+", prose))
    assert "auto.offset.reset" in named
    assert not named - known


def test_the_commands_that_remedies_name_exist() -> None:
    named = set(re.findall(r"`klamm ([a-z -]+?)(?: --[^`]*)?`", "\n".join(REMEDIES.values())))
    assert "topics describe" in named
    for command in named:
        assert re.search(rf"\n##+ klamm {command}\n", page("command-line.md")), command


def test_the_python_pages_have_every_public_name() -> None:
    directives = {
        line.removeprefix("::: ").rpartition(".")[2]
        for path in (FOLDER / "python").glob("*.md")
        for line in path.read_text().splitlines()
        if line.startswith("::: ")
    }
    assert not set(importlib.import_module("klamm").__all__) - directives - {"__version__"}
    for package in ("klamm.producer", "klamm.consumer", "klamm.admin", "klamm.testing"):
        assert set(importlib.import_module(package).__all__) <= directives

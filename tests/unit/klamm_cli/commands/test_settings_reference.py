"""Tests that the reference of all settings matches the programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klamm.config import ClientConfig
from klamm.consumer.config import ConsumerConfig
from klamm.producer.config import ProducerConfig
from klamm.setting import UpdateMode, definitions
from klamm_cli.commands.settings_reference import reference
from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.config.broker_configs import BROKER_CONFIGS
from klamm_server.config.configs_without_effect import configs_without_effect
from klamm_server.config.server_config import known_configs
from klamm_server.config.topic_configs import TOPIC_CONFIGS
from pyspark_klamm.sink_options import SinkSettings
from pyspark_klamm.source_options import SourceSettings
from tests.support.cli_runner import KlammCommand

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "settings.md"
IDLE = "Kafka's broker configs without effect"
"""The section that has no table."""
ALL = {
    "topics": TOPIC_CONFIGS,
    "brokers": BROKER_CONFIGS,
    "controllers": known_configs(ControllerConfig),
    "coordinators": known_configs(CoordinatorConfig),
    "clients": definitions(ClientConfig),
    "producers": definitions(ProducerConfig),
    "consumers": definitions(ConsumerConfig),
    "Spark's source": definitions(SourceSettings),
    "Spark's sink": definitions(SinkSettings),
}


@pytest.fixture(scope="module")
def page() -> str:
    return reference()


def test_the_settings_page_equals_the_output_of_the_command(page: str) -> None:
    printed = KlammCommand("nobody:1").ok("configs", "docs").out
    assert printed == page + "\n"
    assert PAGE.read_text() == printed, "write it again: klamm configs docs > docs/reference/settings.md"


def test_every_row_has_a_cell_for_each_column(page: str) -> None:
    for section in page.split("\n## ")[1:]:
        if section.startswith(f"{IDLE}\n"):
            continue
        rows = [line.replace("\\|", "") for line in section.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) == 1, section


def test_each_config_without_effect_is_named_once(page: str) -> None:
    (section,) = (one for one in page.split("\n## ") if one.startswith(f"{IDLE}\n"))
    named = re.findall(r"`([a-z0-9.]+)`", section)
    assert len(named) == len(set(named))
    assert set(named) == configs_without_effect().keys()


@pytest.mark.parametrize("owner", ALL)
def test_every_setting_is_in_the_page_with_its_type_and_documentation(page: str, owner: str) -> None:
    lines = page.splitlines()
    for name, setting in ALL[owner].items():
        rows = [line for line in lines if line.startswith(f"| `{name}` | ")]
        assert any(setting.documentation in row and f" {setting.type.value} " in row for row in rows), name


@pytest.mark.parametrize("owner", ALL)
def test_the_documentation_of_a_setting_ends_with_a_full_stop(owner: str) -> None:
    for name, setting in ALL[owner].items():
        assert setting.documentation.endswith("."), name
        assert not setting.takes_effect or setting.update_mode is not UpdateMode.READ_ONLY, name


def test_configs_docs_prints_json_with_the_settings_of_the_page():
    sections = KlammCommand("127.0.0.1:1").ok("configs", "docs", "--json").document
    assert {section["name"] for section in sections["Topics"]} == set(TOPIC_CONFIGS)
    names = {setting["name"] for settings in sections.values() for setting in settings}
    assert names == set(re.findall(r"^\| `([^`]+)`", PAGE.read_text(), re.MULTILINE))
    (segment,) = [section for section in sections["Topics"] if section["name"] == "segment.bytes"]
    assert (segment["default"], segment["follows"]) == ("1073741824", ["log.segment.bytes"])

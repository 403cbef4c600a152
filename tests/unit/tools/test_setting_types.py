"""Tests the TypedDicts of the clients' settings."""

from __future__ import annotations

from typing import get_args

import pytest

from klamm.config import ClientConfig
from klamm.consumer.config import ConsumerConfig
from klamm.producer.config import ProducerConfig
from klamm.serializers import SerdeName, parse_deserializer
from klamm.setting import ConfigType, Setting, definitions, one_of
from tools.setting_types import ROOT, description, modules, type_of


@pytest.mark.parametrize("path", modules())
def test_the_modules_are_those_that_the_tool_writes(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == modules()[path], "run python -m tools.setting_types"


@pytest.mark.parametrize("owner", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_each_setting_has_a_type(owner: type) -> None:
    assert all(type_of(setting) for setting in definitions(owner).values())


def test_a_setting_with_few_valid_texts_has_a_literal_type() -> None:
    setting = Setting(ConfigType.STRING, None, "A color.", validator=one_of("red", "green"))
    assert type_of(setting) == "Literal['red', 'green'] | None"


def test_the_description_has_sentence_unit_default_and_name() -> None:
    shown = description(definitions(ProducerConfig)["linger.ms"])
    assert shown == (
        "The producer sends a batch that is not full after this time. In milliseconds. Default: 5."
        " Name in a mapping: `linger.ms`."
    )


def test_the_names_of_serializers_are_those_that_the_setting_accepts() -> None:
    for name in get_args(SerdeName):
        parse_deserializer(name)
    with pytest.raises(ValueError, match=", ".join(get_args(SerdeName))):
        parse_deserializer("other")

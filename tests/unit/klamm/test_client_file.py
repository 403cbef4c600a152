"""Tests a settings file for clients of all kinds: which kind of client gets which settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.client_file import read_client_file
from klamm.config import ClientConfig
from klamm.consumer.config import ConsumerConfig
from klamm.errors import ConfigError
from klamm.producer.config import ProducerConfig
from klamm.secret import Secret

CANARY = "canary-s3cret"


def test_a_client_gets_the_settings_of_its_kind_and_passwords_as_secrets(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"sasl.password={CANARY}\nacks=1\ngroup.id=g\nsend.buffer.bytes=1\n")
    found = read_client_file(str(file), ClientConfig)
    assert found == {"sasl.password": Secret(CANARY)}
    assert CANARY not in repr(found)
    assert read_client_file(str(file), ProducerConfig).keys() == {"sasl.password", "acks"}
    assert read_client_file(str(file), ConsumerConfig).keys() == {"sasl.password", "group.id"}


def test_a_setting_that_no_client_knows_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"sasl.pasword={CANARY}\n")
    with pytest.raises(ConfigError) as refused:
        read_client_file(str(file), ClientConfig)
    assert str(refused.value) == "unknown configuration sasl.pasword; did you mean sasl.password?"

"""Tests `clientConfigFile`: which settings of the shared file each kind of client gets, and where its secrets are."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from klamm.config import ClientConfig
from klamm.errors import ConfigError
from klamm.producer.config import ProducerConfig
from klamm.secret import Secret
from pyspark_klamm.client_file import CLIENT_FILE, with_file
from pyspark_klamm.cluster_access import AccessConfig
from pyspark_klamm.sink_options import sink_options
from pyspark_klamm.source_options import source_options

CANARY = "canary-s3cret"


def file(directory: Path, *lines: str) -> str:
    path = directory / "client.properties"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_each_kind_of_client_gets_only_its_own_settings_of_the_file(tmp_path: Path) -> None:
    name = file(tmp_path, f"sasl.password={CANARY}", "acks=1", "isolation.level=read_uncommitted", "transactional.id=t")
    given = {"client.id": "c", CLIENT_FILE: name}
    password = {"sasl.password": Secret(CANARY)}
    assert with_file(given, ClientConfig) == {"client.id": "c", **password}
    assert with_file(given, ProducerConfig) == {"client.id": "c", "acks": "1", **password}
    assert with_file(given, AccessConfig) == {"client.id": "c", "isolation.level": "read_uncommitted", **password}


def test_an_option_overrides_the_client_config_file(tmp_path: Path) -> None:
    given = {"client.id": "option", CLIENT_FILE: file(tmp_path, "client.id=file")}
    assert with_file(given, ClientConfig) == {"client.id": "option"}
    assert with_file({"client.id": "option"}, ClientConfig) == {"client.id": "option"}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"sasl.pasword={CANARY}", "unknown configuration sasl.pasword; did you mean sasl.password?"),
        (CANARY, "line 1 is not of the form name=value"),
    ],
)
def test_an_error_in_the_client_config_file_does_not_show_a_secret(tmp_path: Path, line: str, told: str) -> None:
    name = file(tmp_path, line)
    with pytest.raises(ConfigError) as refused:
        with_file({CLIENT_FILE: name}, ClientConfig)
    assert str(refused.value).startswith(f"{CLIENT_FILE}={name}: ")
    assert told in str(refused.value)
    assert CANARY not in str(refused.value)


def test_readers_and_writers_hold_only_the_name_of_the_client_config_file(tmp_path: Path) -> None:
    name = file(tmp_path, "bootstrap.servers=h:1", f"sasl.password={CANARY}")
    for client in (
        source_options({CLIENT_FILE.lower(): name, "subscribe": "t"}, streaming=False).client,
        sink_options({CLIENT_FILE.lower(): name}).client,
    ):
        assert client == {CLIENT_FILE: name}
        assert CANARY.encode() not in pickle.dumps(client)


def test_secrets_that_are_options_are_hidden_and_reach_the_tasks() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "kafka.sasl.password": CANARY, "kafka.ssl.key.password": CANARY}
    for made in (source_options({**options, "subscribe": "t"}, streaming=False), sink_options(options)):
        assert CANARY not in repr(made)
        reached = pickle.loads(pickle.dumps(made)).client
        assert reached["sasl.password"] == reached["ssl.key.password"] == Secret(CANARY)


def test_a_server_is_named_by_an_option_or_the_file(tmp_path: Path) -> None:
    name = file(tmp_path, "client.id=c")
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers is not set"):
        sink_options({CLIENT_FILE: name})
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        sink_options({CLIENT_FILE: str(tmp_path / "none"), "kafka.bootstrap.servers": "h:1"})

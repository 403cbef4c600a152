"""Tests `--command-config`: which commands have it, and what the settings in the file do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from klamm.config import ClientConfig
from klamm.consumer.config import ConsumerConfig
from klamm.errors import ConfigError
from klamm.producer.config import ProducerConfig
from klamm_cli.app import app
from klamm_cli.app import run as run_klamm
from klamm_cli.console import command_config
from klamm_cli.console.command_config import client_settings


@pytest.fixture(autouse=True)
def _no_file() -> Iterator[None]:
    token = command_config._file.set(None)
    yield
    command_config._file.reset(token)


def give(directory: Path, text: str) -> Path:
    """Writes a file as it would be named on the command line. Returns its path."""
    file = directory / "client.properties"
    file.write_text(text)
    command_config._file.set(str(file))
    return file


def test_each_client_gets_only_its_own_settings_of_a_shared_file(tmp_path: Path) -> None:
    give(tmp_path, "security.protocol=SSL\nacks=1\ngroup.id=g\nssl.protocol=TLS\nbootstrap.servers=elsewhere:1\n")
    ours = {"bootstrap.servers": "h:1", "security.protocol": "SSL"}

    assert client_settings("h:1") == ours
    assert client_settings("h:1", ClientConfig) == ours
    assert client_settings("h:1", ProducerConfig) == {**ours, "acks": "1"}
    assert client_settings("h:1", ConsumerConfig) == {**ours, "group.id": "g"}


def test_without_a_command_config_file_only_the_server_is_set() -> None:
    assert client_settings("h:1") == {"bootstrap.servers": "h:1"}


def test_a_name_that_no_client_knows_is_refused_not_left_out(tmp_path: Path) -> None:
    file = give(tmp_path, "security.protcol=SSL\n")
    with pytest.raises(ConfigError) as refused:
        client_settings("h:1")
    assert str(refused.value) == (
        f"--command-config {file}: unknown configuration security.protcol; did you mean security.protocol?"
    )


def test_commands_that_talk_to_a_cluster_have_the_option_and_others_do_not() -> None:
    group: Any = typer.main.get_command(app)
    context = group.make_context("klamm", ["topics", "list"])
    talking = set()
    for name in ("topics", "certs"):
        command = group.resolve_command(context, [name])[1]
        for each in command.commands.values():
            options = {option for param in each.params for option in param.opts}
            assert ("--command-config" in options) is ("--bootstrap" in options), each.name
            talking |= {(name, each.name)} if "--bootstrap" in options else set()
    assert ("topics", "list") in talking
    assert ("topics", "size") not in talking
    assert "certs" not in {name for name, _ in talking}


def test_an_invalid_command_config_file_ends_the_command_with_one_line(monkeypatch, capsys, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.keystore.location=/nowhere.pem\n")
    for source in (["--command-config", str(file)], []):
        monkeypatch.setattr("sys.argv", ["klamm", "topics", "list", *source])
        monkeypatch.setenv("KLAMM_COMMAND_CONFIG", str(file))
        assert run_klamm() == 2
        assert capsys.readouterr().err == (
            "klamm: ssl.keystore.location=/nowhere.pem: cannot be read: No such file or directory\n"
        )

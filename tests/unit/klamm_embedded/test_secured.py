"""Tests the files of a secured cluster after its first start, and the changes of later starts."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from klamm.errors import KlammError
from klamm.properties import read_properties
from klamm.secret import Secret
from klamm.security.certificate_facts import certificate_facts
from klamm.security.dev_files import NODE, DevFiles
from klamm.security.sasl.jaas import parse_jaas
from klamm.security.sasl.scram_keys import ScramMechanism, matches
from klamm_controller.log.bootstrap import read_bootstrap_records
from klamm_embedded.secured import ADMIN, SecuredFiles, require_not_secured
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.runtime.disk import Disk


@pytest.fixture
def controllers(tmp_path: Path) -> list[Path]:
    return [tmp_path / f"controller-{number}" for number in (1, 2)]


@pytest.fixture
def files(tmp_path: Path, controllers: list[Path]) -> SecuredFiles:
    made = SecuredFiles(tmp_path)
    made.prepare(controllers, ["broker.example.com"])
    return made


def contents(files: SecuredFiles) -> dict[str, str]:
    return {path.name: path.read_text() for path in files.directory.iterdir()}


def password(files: SecuredFiles) -> Secret:
    return Secret(read_properties(files.librdkafka)["sasl.password"])


def names(files: SecuredFiles) -> set[str]:
    node = DevFiles(files.directory).node
    return set(certificate_facts(str(node), node.read_bytes(), now=datetime.now(UTC))[0].names)


def test_only_the_owner_may_read_the_security_files(files: SecuredFiles) -> None:
    assert stat.S_IMODE(files.directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.directory.iterdir()} == {0o600}
    assert contents(files).keys() == {"ca.pem", "ca.key", "node.pem", "client.properties", "librdkafka.conf"}


def test_every_controllers_bootstrap_records_have_the_user_of_the_client_files(
    files: SecuredFiles, controllers: list[Path]
) -> None:
    first, second = (read_bootstrap_records(Disk(), directory) for directory in controllers)
    assert first == second
    users = replay(MetadataImage.empty(), first, 0).scram_credentials
    assert set(users) == {(ADMIN, mechanism) for mechanism in ScramMechanism}
    assert all(matches(mechanism, password(files), credential) for (_, mechanism), credential in users.items())
    options = parse_jaas(Secret(read_properties(files.client_properties)["sasl.jaas.config"])).options
    assert {name: value.reveal() for name, value in options.items()} == {
        "username": ADMIN,
        "password": password(files).reveal(),
    }


def test_a_second_start_keeps_the_security_files(files: SecuredFiles, controllers: list[Path]) -> None:
    before = contents(files)
    files.prepare(controllers, ["broker.example.com"])
    assert contents(files) == before


def test_another_host_name_gets_a_new_certificate_of_the_same_ca(files: SecuredFiles, controllers: list[Path]) -> None:
    before = contents(files)
    assert "DNS:other.example.com" not in names(files)
    files.prepare(controllers, ["other.example.com"])
    assert {"DNS:other.example.com", "DNS:localhost", "IP:127.0.0.1", "IP:::1"} <= names(files)
    after = contents(files)
    assert {name for name in after if after[name] != before[name]} == {"node.pem"}


@pytest.mark.parametrize(("days_left", "is_renewed"), [(29, True), (31, False)])
def test_a_certificate_is_renewed_before_its_end(
    files: SecuredFiles, controllers: list[Path], days_left: int, is_renewed: bool
) -> None:
    node = DevFiles(files.directory).node
    soon = timedelta(hours=1)
    hosts = [name.partition(":")[2] for name in names(files)]
    DevFiles(files.directory).make_servers({NODE: hosts}, now=datetime.now(UTC) + soon, valid_days=days_left)
    before = node.read_bytes()
    files.prepare(controllers, ["broker.example.com"])
    assert (node.read_bytes() != before) == is_renewed


def test_an_interrupted_first_start_makes_new_security_files(files: SecuredFiles, controllers: list[Path]) -> None:
    old = password(files)
    files.directory.rename(files.directory.with_name("security.new"))
    files.prepare(controllers, ["broker.example.com"])
    assert password(files).reveal() != old.reveal()
    users = replay(MetadataImage.empty(), read_bootstrap_records(Disk(), controllers[0]), 0).scram_credentials
    credential = users[ADMIN, ScramMechanism.SHA_512]
    assert matches(ScramMechanism.SHA_512, password(files), credential)


def test_an_existing_cluster_cannot_be_secured_later(tmp_path: Path) -> None:
    controller = tmp_path / "controller"
    controller.mkdir()
    (controller / "log").touch()
    with pytest.raises(KlammError, match=r"cannot be started with --secure: the directory .*controller is not empty"):
        SecuredFiles(tmp_path).prepare([controller], [])
    assert not SecuredFiles(tmp_path).directory.exists()
    require_not_secured(tmp_path)


def test_a_secured_cluster_cannot_be_started_without_security(files: SecuredFiles) -> None:
    with pytest.raises(KlammError, match="holds a secured cluster: start it with --secure"):
        require_not_secured(files.data_dir)

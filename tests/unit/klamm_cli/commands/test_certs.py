"""Tests `klamm certs`: the files that it writes for servers and clients, and its checks of files."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from klamm.errors import ConfigError
from klamm.security.certificate_facts import certificate_facts
from klamm.security.contexts import check_mutual_trust
from klamm.security.dev_files import DevFiles
from klamm.security.material import identity, load_material
from klamm.security.tls_settings import ListenerTlsSettings
from klamm_cli.app import run as run_klamm
from tests.support.certificates import client, server


@pytest.fixture
def klamm(monkeypatch, capsys):
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["klamm", *arguments])
        status = run_klamm()
        return status, *capsys.readouterr()

    return run


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def material(files: DevFiles):
    stores = {"ssl.keystore.location": str(files.node), "ssl.truststore.location": str(files.ca)}
    settings = ListenerTlsSettings.parse(stores)
    loaded = load_material(settings, now=datetime.now(UTC))
    check_mutual_trust(settings, loaded)
    return loaded


def test_certs_dev_makes_server_certificates_that_only_the_owner_may_read(klamm, tmp_path: Path) -> None:
    status, out, _ = klamm(
        "certs", "dev", "--dir", str(tmp_path / "certs"), "--host", "a.example", "--host", "10.0.0.7"
    )
    files = DevFiles(tmp_path / "certs")

    assert status == 0
    assert str(files.node) in out
    assert mode(files.directory) == 0o700
    assert {mode(each) for each in files.directory.iterdir()} == {0o600}
    loaded = material(files)
    assert identity(loaded).names == {"DNS:a.example", "IP:10.0.0.7"}
    assert loaded.expires is not None
    assert timedelta(days=89) < loaded.expires - datetime.now(UTC) <= timedelta(days=90)
    assert f"ssl.truststore.location={files.ca}\n" in files.client_properties.read_text()


def test_a_second_certs_dev_keeps_the_ca_and_makes_new_certificates(klamm, tmp_path: Path) -> None:
    files = DevFiles(tmp_path)
    klamm("certs", "dev", "--dir", str(tmp_path))
    ca, node = files.ca.read_bytes(), files.node.read_bytes()

    assert klamm("certs", "dev", "--dir", str(tmp_path))[0] == 0

    assert files.ca.read_bytes() == ca
    assert files.node.read_bytes() != node
    assert identity(material(files)).names == {"DNS:localhost", "IP:127.0.0.1", "IP:::1"}


def test_certs_dev_makes_one_certificate_with_its_own_name_for_each_server(klamm, tmp_path: Path) -> None:
    given = ("certs", "dev", "--dir", str(tmp_path), "--host", "localhost", "--server", "a", "--server", "b")
    assert klamm(*given)[0] == 0
    files = DevFiles(tmp_path)
    assert not files.node.exists()
    for name in ("a", "b"):
        own = certificate_facts(name, files.server(name).read_bytes(), now=datetime.now(UTC))[0]
        assert (own.subject, set(own.names)) == (f"CN={name}", {f"DNS:{name}", "DNS:localhost"})


def test_an_expired_or_invalid_ca_is_refused(tmp_path: Path) -> None:
    files = DevFiles(tmp_path)
    files.make(["h"], now=datetime.now(UTC) - timedelta(days=3_651))
    with pytest.raises(ConfigError, match="the CA expired at"):
        files.make(["h"], now=datetime.now(UTC))
    files.ca_key.write_text("-")
    with pytest.raises(ConfigError, match="not a certificate with its key"):
        files.make(["h"], now=datetime.now(UTC))


def test_certs_show_prints_the_names_the_issuer_and_the_expiry(klamm, tmp_path: Path) -> None:
    file = tmp_path / "node.pem"
    file.write_text(server("node", "a.example").keystore_pem)

    status, out, _ = klamm("certs", "show", str(file))

    lines = dict(line.split(":", 1) for line in out.splitlines() if line)
    assert status == 0
    assert lines["subject"].strip() == "CN=node"
    assert lines["names"].strip() == "DNS:a.example"
    assert lines["issuer"].strip() == "CN=Test CA"
    assert lines["days_left"].strip() in {"89", "90"}
    assert lines["key matches"].strip() == "yes"
    assert "PRIVATE" not in out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (server().key_pem + client().certificate_pem, "key matches: no"),
        (server().certificate_pem, "key matches: there is no private key in the file"),
        (server().certificate_pem + server().encrypted_key_pem("x"), "key matches: the private key is encrypted"),
        (server(valid_days=-3).certificate_pem, "days_left:   -"),
    ],
)
def test_certs_show_reports_a_wrong_key_and_an_expired_certificate(
    klamm, tmp_path: Path, content: str, told: str
) -> None:
    file = tmp_path / "some.pem"
    file.write_text(content)
    assert told in klamm("certs", "show", str(file))[1]


@pytest.mark.parametrize("content", [b"", b"\xfe\xed", server().certificate_pem.replace("MII", "***").encode()])
def test_certs_show_refuses_a_file_without_a_certificate(klamm, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "some.pem"
    file.write_bytes(content)
    status, _, err = klamm("certs", "show", str(file))
    assert status != 0
    assert err.startswith(f"klamm: {file}: ")
    assert (
        klamm("certs", "show", str(tmp_path / "missing"))[2]
        == f"klamm: {tmp_path}/missing: No such file or directory\n"
    )


def test_a_dry_run_of_certs_dev_writes_nothing(klamm, tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    files = DevFiles(directory)
    status, out, _ = klamm("certs", "dev", "--dir", str(directory), "--dry-run")
    assert (status, directory.exists()) == (0, False)
    assert out.startswith(f"would write these files:\nservers: ssl.keystore.location={files.node}\n")
    expected = {
        "ssl.keystore.location": [str(files.node)],
        "ssl.truststore.location": str(files.ca),
        "client_properties": str(files.client_properties),
    }
    for options, is_dry in ((["--dry-run"], True), ([], False)):
        _, out, _ = klamm("certs", "dev", "--dir", str(directory), "--json", *options)
        assert json.loads(out) == {**expected, "validate_only": is_dry}


def test_a_dry_run_of_certs_dev_refuses_what_certs_dev_refuses(klamm, tmp_path: Path) -> None:
    broken = DevFiles(tmp_path / "broken")
    broken.directory.mkdir()
    broken.ca_key.write_text("no key")
    broken.ca.write_text("no certificate")
    file = tmp_path / "file"
    file.touch()
    for directory in (broken.directory, file):
        dry, real = (klamm("certs", "dev", "--dir", str(directory), *options) for options in (["--dry-run"], []))
        assert dry == real
        assert real[0] != 0

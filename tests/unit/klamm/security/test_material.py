"""Tests that keys and certificates are checked before they are used."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from klamm.errors import ConfigError
from klamm.security.material import Identity, identity, identity_changes, load_material
from klamm.security.tls_settings import TlsSettings
from klamm.setting import parse
from tests.support.certificates import LATER, NOW, ca, client, replace, server, write_stores


def settings(**given: str) -> TlsSettings:
    return TlsSettings(**parse(TlsSettings, {name.replace("_", "."): value for name, value in given.items()}))


def test_keys_from_files_and_from_settings_give_the_same_material(tmp_path: Path) -> None:
    stores = write_stores(tmp_path, server())
    from_files = load_material(settings(**stores.settings()), now=NOW)
    from_texts = load_material(
        settings(
            ssl_keystore_key=server().key_pem,
            ssl_keystore_certificate_chain=server().certificate_pem,
            ssl_truststore_certificates=ca().signed.certificate_pem,
        ),
        now=NOW,
    )

    assert from_files == from_texts
    assert from_files.key is not None
    assert from_files.key.reveal() == server().key_pem
    assert from_files.expires == (NOW + timedelta(days=90)).replace(microsecond=0)
    assert "PRIVATE KEY" not in repr(from_files)


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    store = tmp_path / "keystore.pem"
    # The chain may come before the key as well.
    replace(store, server().certificate_pem + server().encrypted_key_pem("s3cret"))

    material = load_material(settings(ssl_keystore_location=str(store), ssl_key_password="s3cret"), now=NOW)

    assert material.key is not None
    assert material.key.reveal() == server().key_pem
    with pytest.raises(ConfigError, match=r"is encrypted, and ssl\.key\.password is not set"):
        load_material(settings(ssl_keystore_location=str(store)), now=NOW)
    with pytest.raises(ConfigError, match=r"cannot be decrypted with ssl\.key\.password") as refused:
        load_material(settings(ssl_keystore_location=str(store), ssl_key_password="wr0ng"), now=NOW)
    assert "wr0ng" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (server().key_pem, "there is no certificate in it"),
        (server().certificate_pem, "there is no private key in it, expected PEM with BEGIN PRIVATE KEY"),
        ("\xfe\xed", "there is no private key in it"),
        (server().key_pem + client().certificate_pem, "the private key is not the one of the first certificate"),
        (server().key_pem.replace("M", "*") + server().certificate_pem, "the private key is broken or of an unknown"),
        (server().key_pem + server().certificate_pem.replace("MII", "***"), "a certificate in it is broken"),
        (server(valid_days=-1).keystore_pem, "the certificate of CN=server expired at"),
        (ca().for_server("early", ["h"], now=LATER).keystore_pem, "the certificate of CN=early is not valid before"),
        (server().keystore_pem + ca("Old CA").for_client("x", now=NOW, valid_days=-2).certificate_pem, "CN=x expired"),
    ],
)
def test_unusable_keystore_content_is_refused_and_the_setting_is_named(tmp_path: Path, content: str, told: str) -> None:
    store = tmp_path / "keystore.pem"
    replace(store, content)

    with pytest.raises(ConfigError) as refused:
        load_material(settings(ssl_keystore_location=str(store)), now=NOW)

    assert str(refused.value).startswith(f"ssl.keystore.location={store}: ")
    assert told in str(refused.value)


def test_missing_files_and_files_with_wrong_permissions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.pem: cannot be read: No such file"):
        load_material(settings(ssl_keystore_location=str(tmp_path / "missing.pem")), now=NOW)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location=.*: cannot be read: Is a directory"):
        load_material(settings(ssl_truststore_location=str(tmp_path)), now=NOW)

    stores = write_stores(tmp_path, server())
    stores.keystore.chmod(0o644)
    with pytest.raises(ConfigError, match=r"everybody on this machine may read or write the private key \(mode 0644\)"):
        load_material(settings(**stores.settings()), now=NOW)
    stores.keystore.chmod(0o640)
    assert load_material(settings(**stores.settings()), now=NOW).key is not None


def test_a_changed_certificate_identity_is_detected_as_in_kafka(tmp_path: Path) -> None:
    def material(name: str, *hosts: str):
        return load_material(settings(**write_stores(tmp_path, server(name, *hosts)).settings()), now=NOW)

    old = material("node", "a.example", "10.0.0.1")

    assert identity(old) == Identity("CN=node", frozenset({"DNS:a.example", "IP:10.0.0.1"}))
    assert identity_changes(old, material("node", "a.example", "10.0.0.1", "b.example")) is None
    assert identity_changes(old, material("node", "a.example")) == Identity("", frozenset({"IP:10.0.0.1"}))
    assert identity_changes(old, material("other", "a.example", "10.0.0.1")) == Identity("CN=other", frozenset())

"""Tests the reload of changed files.

Valid files are loaded, invalid ones change nothing, and each reason is reported once.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from klamm.errors import ConfigError
from klamm.security.material import TlsMaterial
from klamm.security.reload import WatchedMaterial
from klamm.security.tls_settings import TlsSettings
from klamm.setting import parse
from tests.support.certificates import NOW, Stores, ca, replace, server, write_stores


def settings(directory: Path) -> TlsSettings:
    return TlsSettings(**parse(TlsSettings, write_stores(directory, server()).settings()))


def test_changed_files_are_reloaded_once(tmp_path: Path) -> None:
    watched = WatchedMaterial(settings(tmp_path), now=NOW)
    first = watched.material
    assert not watched.refresh(NOW)

    write_stores(tmp_path, server(valid_days=30))
    assert watched.refresh(NOW)
    assert (watched.version, watched.material != first) == (1, True)
    assert not watched.refresh(NOW)

    write_stores(tmp_path, server(valid_days=30), trusts=ca("New CA"))
    assert watched.refresh(NOW)
    assert watched.version == 2


def test_the_same_content_in_a_new_file_is_no_change(tmp_path: Path) -> None:
    watched = WatchedMaterial(settings(tmp_path), now=NOW)
    write_stores(tmp_path, server())
    assert not watched.refresh(NOW)
    assert watched.version == 0


def test_files_that_kubernetes_replaces_are_reloaded_once(tmp_path: Path) -> None:
    """A mounted Secret has links to `..data/`, a link to a directory. Kubernetes writes a new directory, replaces the
    link `..data`, and deletes the old directory."""
    now = tmp_path / "..data"
    stores = write_stores(tmp_path / "..first", server())
    now.symlink_to("..first")
    for path in stores:
        (tmp_path / path.name).symlink_to(Path("..data", path.name))
    named = Stores(*(tmp_path / path.name for path in stores))
    watched = WatchedMaterial(TlsSettings(**parse(TlsSettings, named.settings())), now=NOW)
    first = watched.material

    write_stores(tmp_path / "..second", server(valid_days=30))
    assert not watched.refresh(NOW)
    new = tmp_path / "..data_tmp"
    new.symlink_to("..second")
    new.rename(now)
    shutil.rmtree(tmp_path / "..first")
    assert watched.refresh(NOW)
    assert watched.material.chain != first.chain
    assert not watched.refresh(NOW)


def test_an_invalid_file_is_reported_once_and_a_later_valid_one_is_loaded(tmp_path: Path) -> None:
    watched = WatchedMaterial(settings(tmp_path), now=NOW)
    first = watched.material
    keystore = tmp_path / "keystore.pem"

    replace(keystore, "half of a fi")
    with pytest.raises(ConfigError, match="there is no private key in it"):
        watched.refresh(NOW)
    assert not watched.refresh(NOW)
    keystore.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        watched.refresh(NOW)
    early = ca().for_server("server", ["localhost"], now=NOW + timedelta(days=1))
    replace(keystore, early.keystore_pem)
    with pytest.raises(ConfigError, match="is not valid before"):
        watched.refresh(NOW)
    assert not watched.refresh(NOW)
    assert (watched.material, watched.version) == (first, 0)

    assert watched.refresh(NOW + timedelta(days=2)), "time alone made it fit"
    assert watched.version == 1


def test_the_check_gets_the_material_in_use_and_can_refuse_the_new_one(tmp_path: Path) -> None:
    seen: list[tuple[TlsMaterial | None, TlsMaterial]] = []

    def check(old: TlsMaterial | None, new: TlsMaterial) -> None:
        seen.append((old, new))
        if len(seen) == 2:
            raise ConfigError("it does not fit")

    watched = WatchedMaterial(settings(tmp_path), now=NOW, check=check)
    first = watched.material
    write_stores(tmp_path, server("other"))
    with pytest.raises(ConfigError, match="it does not fit"):
        watched.refresh(NOW)
    assert watched.material is first
    assert seen[0] == (None, first)
    assert seen[1][0] is first
    assert seen[1][1] != first

"""Tests the checks of a server's listener keys, which are files of this machine."""

from __future__ import annotations

from pathlib import Path

from klamm_cli.doctor.finding import Level
from klamm_cli.doctor.local import check_local
from tests.support import certificates


def problems_of_keys(directory: Path, stores: certificates.Stores) -> list[str]:
    settings = {
        "node.id": "4",
        "listeners": "GRPC://127.0.0.1:0,SSL://127.0.0.1:0",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "log.dirs": str(directory / "data"),
        **stores.settings(),
    }
    path = directory / "broker.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    findings, _ = check_local([str(path)], [])
    return [finding.text for finding in findings if finding.check == "keys" and finding.level is Level.PROBLEM]


def test_a_private_key_that_other_users_may_read_is_a_problem(tmp_path: Path) -> None:
    stores = certificates.write_stores(tmp_path / "keys", certificates.server())
    assert problems_of_keys(tmp_path, stores) == []
    stores.keystore.chmod(0o644)
    (found,) = problems_of_keys(tmp_path, stores)
    assert "listener SSL: " in found
    assert "everybody on this machine may read or write the private key" in found

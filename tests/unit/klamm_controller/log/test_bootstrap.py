from __future__ import annotations

import stat

import pytest

from klamm.errors import KlammError
from klamm.wire.v1.metadata_pb2 import ClusterSecretRecord, MetadataRecord, UserScramCredentialRecord
from klamm_controller.log.bootstrap import (
    read_bootstrap_records,
    remove_bootstrap_records,
    write_bootstrap_records,
)
from klamm_server.runtime.disk import Disk

DISK = Disk()
RECORDS = (
    MetadataRecord(cluster_secret=ClusterSecretRecord(secret=b"s")),
    MetadataRecord(user_scram_credential=UserScramCredentialRecord(name="admin", mechanism=1)),
)


def test_bootstrap_records_are_read_until_they_are_removed(tmp_path):
    directory = tmp_path / "some" / "controller"
    write_bootstrap_records(directory, RECORDS)
    assert read_bootstrap_records(DISK, directory) == RECORDS
    remove_bootstrap_records(DISK, directory)
    remove_bootstrap_records(DISK, directory)
    assert read_bootstrap_records(DISK, directory) == ()
    assert list(directory.iterdir()) == []


def test_only_the_owner_may_read_bootstrap_records(tmp_path):
    directory = tmp_path / "controller"
    write_bootstrap_records(directory, RECORDS)
    (file,) = directory.iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (directory, file)] == [0o700, 0o600]


def test_bootstrap_records_can_be_written_to_an_existing_empty_directory(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / "bootstrap.records.tmp").write_text("of a command that was killed")
    write_bootstrap_records(tmp_path, RECORDS)
    assert read_bootstrap_records(DISK, tmp_path) == RECORDS


@pytest.mark.parametrize("name", ["meta.properties", "metadata.db", "bootstrap.records"])
def test_bootstrap_records_are_not_written_to_a_directory_in_use(tmp_path, name):
    (tmp_path / name).write_text("before")
    with pytest.raises(KlammError, match=f"is not empty: it has {name}"):
        write_bootstrap_records(tmp_path, RECORDS)
    assert (tmp_path / name).read_text() == "before"


def test_bootstrap_records_below_a_file_are_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(KlammError, match="cannot be written"):
        write_bootstrap_records(tmp_path / "file", RECORDS)


def test_a_damaged_bootstrap_file_is_refused(tmp_path):
    (tmp_path / "bootstrap.records").write_bytes(b"\xff\xff\xff")
    with pytest.raises(KlammError, match="is damaged"):
        read_bootstrap_records(DISK, tmp_path)

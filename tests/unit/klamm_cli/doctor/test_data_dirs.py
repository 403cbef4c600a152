"""Tests the checks of data directories, their disks, and their owners."""

from __future__ import annotations

import dataclasses

import pytest

from klamm_cli.doctor.data_dirs import DataDirFacts, check_data_dir, file_system_of, inspect, read_mounts
from klamm_cli.doctor.finding import Level

MIB = 1024 * 1024
SOUND = DataDirFacts(
    path="/data",
    exists=True,
    writable=True,
    total_bytes=100_000 * MIB,
    usable_bytes=50_000 * MIB,
    file_system="ext4",
    foreign_owner=False,
    cluster_ids=(("/data", "a"),),
    unreadable="",
)


def check(**changes):
    return [(each.level, each.text) for each in check_data_dir(dataclasses.replace(SOUND, **changes))]


def test_a_usable_data_directory_has_no_problem():
    assert check() == [(Level.OK, "/data: 50000 MiB free on ext4")]
    assert check(exists=False, cluster_ids=()) == [(Level.OK, "/data, not there yet: 50000 MiB free on ext4")]


@pytest.mark.parametrize(
    ("changes", "level", "said"),
    [
        ({"writable": False}, Level.PROBLEM, "/data cannot be written by this user"),
        ({"writable": False, "exists": False}, Level.PROBLEM, "/data is not there and cannot be made by this user"),
        ({"foreign_owner": True}, Level.WARNING, "/data belongs to another user"),
        ({"usable_bytes": 900 * MIB}, Level.PROBLEM, "/data has 900 MiB free"),
        ({"usable_bytes": 9_000 * MIB}, Level.WARNING, "/data: its disk is 91 % full, 9000 MiB free"),
        (
            {"file_system": "nfs4"},
            Level.WARNING,
            "/data is on nfs4: over a network, where locks and fsync may not hold",
        ),
        ({"file_system": "tmpfs"}, Level.WARNING, "/data is on tmpfs, memory: gone with a restart of the machine"),
        ({"unreadable": "/data/meta.properties: damaged"}, Level.PROBLEM, "/data/meta.properties: damaged"),
        (
            {"cluster_ids": (("/data/a", "x"), ("/data/b", "y"))},
            Level.PROBLEM,
            "directories of several clusters: /data/a: x, /data/b: y",
        ),
    ],
)
def test_each_fault_of_a_data_directory_is_reported(changes, level, said):
    assert check(**changes) == [(level, said)]


def test_a_real_data_directory_is_inspected_with_its_cluster_ids(tmp_path):
    for name, text in (("broker", "version=1\ncluster.id=abc\n"), ("controller", "cluster.id=abc\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(text)
    found = inspect(str(tmp_path), read_mounts())
    assert (found.exists, found.writable, found.foreign_owner, found.unreadable) == (True, True, False, "")
    assert found.cluster_ids == ((f"{tmp_path}/broker", "abc"), (f"{tmp_path}/controller", "abc"))
    assert 0 < found.usable_bytes <= found.total_bytes


@pytest.mark.parametrize("text", ["nonsense", "version=1\n"])
def test_meta_properties_without_a_cluster_id_are_unreadable(tmp_path, text):
    (tmp_path / "meta.properties").write_text(text)
    assert str(tmp_path / "meta.properties") in inspect(str(tmp_path), []).unreadable


def test_a_missing_data_directory_is_checked_by_its_closest_existing_parent(tmp_path):
    found = inspect(str(tmp_path / "a" / "b"), [])
    assert (found.exists, found.writable, found.cluster_ids) == (False, True, ())


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/", "overlay"), ("/data", "xfs"), ("/data/klamm", "xfs"), ("/database", "overlay"), ("/data/tmp/x", "tmpfs")],
)
def test_the_file_system_is_that_of_the_closest_mount(path, expected):
    mounts = [("/", "ext4"), ("/", "overlay"), ("/data", "xfs"), ("/data/tmp", "tmpfs")]
    assert file_system_of(path, mounts) == expected

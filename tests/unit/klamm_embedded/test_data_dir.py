"""Tests how a data directory describes the cluster in it."""

from __future__ import annotations

import pytest

from klamm.errors import KlammError
from klamm_controller.log.bootstrap import write_bootstrap_records
from klamm_embedded.data_dir import brokers_for, check_embedded, claim
from klamm_embedded.layout import ClusterSize

THREE = ClusterSize(controllers=3, brokers=3)


def test_a_cluster_keeps_its_id_and_may_get_more_brokers(tmp_path):
    data_dir = tmp_path / "new"
    cluster_id = claim(data_dir, THREE)
    assert claim(data_dir, ClusterSize(controllers=3, brokers=5, coordinators=2)) == cluster_id
    assert claim(tmp_path / "another", THREE) != cluster_id


def test_another_number_of_controllers_is_refused(tmp_path):
    claim(tmp_path, THREE)
    with pytest.raises(KlammError, match="a cluster of 3 controllers, but --controllers is 1"):
        claim(tmp_path, ClusterSize(brokers=3))


def test_a_cluster_of_several_processes_cannot_be_started_in_one_process(tmp_path):
    claim(tmp_path, THREE)
    with pytest.raises(KlammError, match="start it with --controllers 3"):
        check_embedded(tmp_path)


def test_a_cluster_in_one_process_cannot_be_started_as_several_processes(tmp_path):
    (tmp_path / "controller").mkdir()
    check_embedded(tmp_path)
    with pytest.raises(KlammError, match="holds a cluster in one process"):
        claim(tmp_path, THREE)


@pytest.mark.parametrize("formatted", [".", "controller-1"])
def test_a_cluster_in_one_process_refuses_users_that_it_would_not_read(tmp_path, formatted):
    write_bootstrap_records(tmp_path / formatted, [])
    with pytest.raises(KlammError, match=r"which this cluster does not read: format .*/controller"):
        check_embedded(tmp_path)


@pytest.mark.parametrize("formatted", [".", "controller"])
def test_a_cluster_of_several_processes_refuses_users_that_it_would_not_read(tmp_path, formatted):
    write_bootstrap_records(tmp_path / formatted, [])
    with pytest.raises(KlammError, match=r"which this cluster does not read: format .*/controller-1"):
        claim(tmp_path, THREE)


def test_a_directory_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(KlammError, match="file/data cannot be used: Not a directory"):
        claim(tmp_path / "file" / "data", THREE)


def test_a_file_without_the_id_is_named(tmp_path):
    (tmp_path / "cluster.properties").write_text("controllers=3\n")
    with pytest.raises(KlammError, match=r"cluster\.properties: cluster\.id is missing"):
        claim(tmp_path, THREE)


def test_auto_starts_a_broker_for_each_core_but_no_fewer_than_the_directory_has(tmp_path):
    assert brokers_for(tmp_path / "new", 4) == 4
    for name in ("broker-1", "broker-6", "broker-old"):
        (tmp_path / name).mkdir()
    assert brokers_for(tmp_path, 4) == 6
    assert brokers_for(tmp_path, 8) == 8


def test_auto_keeps_a_cluster_in_one_process(tmp_path):
    (tmp_path / "controller").mkdir()
    assert brokers_for(tmp_path, 8) == 1

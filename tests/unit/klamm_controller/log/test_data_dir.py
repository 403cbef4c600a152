from __future__ import annotations

import base64
import random

import pytest

from klamm.errors import KlammError
from klamm_controller.log.data_dir import open_data_dir, random_uuid
from klamm_server.runtime.disk import Disk


def opened(path, node_id=1, cluster_id=""):
    data_dir = open_data_dir(path, node_id=node_id, cluster_id=cluster_id, disk=Disk(), rng=random.SystemRandom())
    data_dir.close()
    return data_dir


def test_a_random_uuid_has_kafkas_form():
    rng = random.Random(1)
    ids = {random_uuid(rng) for _ in range(500)}
    assert len(ids) == 500
    for cluster_id in ids:
        assert len(cluster_id) == 22
        assert not cluster_id.startswith("-")
        assert len(base64.urlsafe_b64decode(cluster_id + "==")) == 16


def test_a_directory_is_formatted_once(tmp_path):
    first = opened(tmp_path / "a" / "b")
    assert opened(tmp_path / "a" / "b").cluster_id == first.cluster_id
    assert opened(tmp_path / "a" / "b", cluster_id=first.cluster_id).cluster_id == first.cluster_id
    assert opened(tmp_path / "c").cluster_id != first.cluster_id
    meta = (tmp_path / "a" / "b" / "meta.properties").read_text().splitlines()
    assert meta == ["version=1", f"cluster.id={first.cluster_id}", "node.id=1"]


def test_a_given_cluster_id_is_taken_by_a_new_directory(tmp_path):
    assert opened(tmp_path, cluster_id="mine").cluster_id == "mine"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cluster_id": "other"}, "cluster.id=mine, but the controller has cluster.id=other"),
        ({"node_id": 2}, "node.id=1"),
    ],
)
def test_a_directory_of_another_cluster_or_node_is_refused(tmp_path, changes, said):
    opened(tmp_path, cluster_id="mine")
    with pytest.raises(KlammError, match=said):
        opened(tmp_path, **changes)
    opened(tmp_path)


@pytest.mark.parametrize("text", ["", "version=1\nnode.id=1\n", "version=1\ncluster.id=\nnode.id=1\n", "nonsense"])
def test_a_damaged_meta_file_is_refused(tmp_path, text):
    opened(tmp_path)
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(KlammError, match="damaged"):
        opened(tmp_path)


def test_a_directory_of_a_later_version_is_refused(tmp_path):
    opened(tmp_path, cluster_id="mine")
    (tmp_path / "meta.properties").write_text("version=2\ncluster.id=mine\nnode.id=1\n")
    with pytest.raises(KlammError, match="version=2"):
        opened(tmp_path)


def test_a_log_without_meta_properties_is_refused_and_not_formatted(tmp_path):
    (tmp_path / "metadata.db").mkdir()
    with pytest.raises(KlammError, match=r"no meta\.properties"):
        opened(tmp_path)


def test_a_path_that_is_a_file_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(KlammError, match="cannot be used"):
        opened(tmp_path / "file")

"""Tests the small files of a log dir: checkpoints, meta.properties, partition.metadata, lock, clean-shutdown marker."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from klamm.errors import ConfigError
from klamm.model import TopicId, TopicPartition
from klamm_broker.log.files.checkpoints import CheckpointError, read_offsets, write_offsets
from klamm_broker.log.files.clean_shutdown import take_clean_shutdown, write_clean_shutdown
from klamm_broker.log.files.dir_lock import DirectoryLock
from klamm_broker.log.files.meta_properties import (
    MetaProperties,
    missing_directory_ids,
    read_meta_properties,
    write_meta_properties,
)
from klamm_broker.log.files.partition_metadata import PartitionMetadataError, read_topic_id, write_topic_id
from klamm_broker.log.files.storage_failure import LogDirError
from klamm_broker.log.log_config import LOG_APPEND_TIME, LogConfig
from klamm_server.runtime.disk import Disk

ID = uuid.UUID("9005e2fa-e853-459d-b155-770d905504f8")
DISK = Disk()
DAMAGED_IDS = "version=1\ncluster.id=one\nnode.id=3\ndirectory.id=kAXi-uhTRZ2xVXcNkFUE-A\nbroker.directory.ids=x\n"


class TestCheckpoints:
    def test_checkpoint_offsets_survive_a_round_trip_in_kafkas_format(self, tmp_path) -> None:
        path = str(tmp_path / "recovery-point-offset-checkpoint")
        offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 0): 2**40}
        write_offsets(DISK, path, offsets)
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == f"0\n2\na 0 {2**40}\nb 1 7\n"
        assert read_offsets(DISK, path) == offsets

    def test_a_missing_checkpoint_file_has_no_offsets(self, tmp_path) -> None:
        assert read_offsets(DISK, str(tmp_path / "x")) == {}

    @pytest.mark.parametrize(
        "content", ["", "0\n", "0\nx\n", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na b 1\n"]
    )
    def test_a_damaged_checkpoint_is_an_error_that_names_it(self, tmp_path, content) -> None:
        (tmp_path / "x").write_text(content)
        with pytest.raises(CheckpointError, match=str(tmp_path / "x")):
            read_offsets(DISK, str(tmp_path / "x"))

    @pytest.mark.parametrize("operation", ["pwrite", "fdatasync", "replace"])
    def test_a_write_that_fails_leaves_the_old_content(self, tmp_path, faulty_disk, operation) -> None:
        path = str(tmp_path / "x")
        write_offsets(faulty_disk, path, {TopicPartition("a", 0): 1})
        faulty_disk.errors[operation] = 28
        with pytest.raises(OSError, match="No space"):
            write_offsets(faulty_disk, path, {TopicPartition("a", 0): 2})
        assert read_offsets(DISK, path) == {TopicPartition("a", 0): 1}


class TestMetaProperties:
    def write(self, path, **differences: Any) -> MetaProperties:
        fields: dict[str, Any] = {"cluster_id": "one", "node_id": 3, "directory_id": ID, "broker_directory_ids": {ID}}
        properties = MetaProperties(**fields | differences)
        write_meta_properties(DISK, str(path), properties)
        return properties

    def read(self, path, *, cluster_id: str = "one", node_id: int = 3) -> MetaProperties | None:
        return read_meta_properties(DISK, str(path), cluster_id=cluster_id, node_id=node_id)

    def test_meta_properties_have_kafkas_format_and_one_key_more(self, tmp_path) -> None:
        assert self.read(tmp_path) is None
        written = self.write(tmp_path, broker_directory_ids=frozenset({ID, uuid.UUID(int=5)}))
        content = (tmp_path / "meta.properties").read_text()
        assert content == (
            "version=1\ncluster.id=one\nnode.id=3\ndirectory.id=kAXi-uhTRZ2xVXcNkFUE-A\n"
            "broker.directory.ids=AAAAAAAAAAAAAAAAAAAABQ,kAXi-uhTRZ2xVXcNkFUE-A\n"
        )
        assert self.read(tmp_path) == written

    def test_kafkas_own_file_is_read(self, tmp_path) -> None:
        (tmp_path / "meta.properties").write_text(
            "#\n#Fri Oct 25 03:33:01 UTC 2024\nnode.id=3\ndirectory.id=kAXi-uhTRZ2xVXcNkFUE-A\n"
            "version=1\ncluster.id=one\n"
        )
        found = self.read(tmp_path)
        assert found is not None
        assert (found.directory_id, found.broker_directory_ids) == (ID, frozenset())

    def test_another_cluster_is_refused_in_one_line(self, tmp_path) -> None:
        self.write(tmp_path)
        with pytest.raises(LogDirError, match="data directory of another cluster") as caught:
            self.read(tmp_path, cluster_id="two")
        text = str(caught.value)
        assert str(tmp_path) in text
        assert "one" in text
        assert "two" in text
        assert "\n" not in text

    def test_the_meta_properties_of_another_node_are_refused(self, tmp_path) -> None:
        self.write(tmp_path)
        with pytest.raises(LogDirError, match="belongs to node 3, this is node 4"):
            self.read(tmp_path, node_id=4)

    @pytest.mark.parametrize(
        "content", ["", "version=0\n", "version=1\n", "version=1\ncluster.id=a\nnode.id=x\n", DAMAGED_IDS]
    )
    def test_damaged_meta_properties_are_an_error_that_names_them(self, tmp_path, content) -> None:
        (tmp_path / "meta.properties").write_text(content)
        with pytest.raises(LogDirError, match=r"meta\.properties"):
            self.read(tmp_path)

    @pytest.mark.parametrize(
        ("found", "lost", "missing"),
        [
            ([], "", ""),
            ([("a", "")], "", ""),
            ([("a", "ab"), ("b", "ab")], "", ""),
            ([("a", "ab")], "", "b"),
            ([("a", "ab"), ("c", "bc")], "", "b"),
            ([("a", "abcd")], "bc", "d"),
            ([("a", "ab"), ("b", "a")], "b", ""),
        ],
    )
    def test_a_directory_id_is_missing_if_any_dir_lists_it_and_no_dir_has_it(self, found, lost, missing) -> None:
        def ids(letters: str) -> frozenset[uuid.UUID]:
            return frozenset(uuid.UUID(int=ord(letter)) for letter in letters)

        properties = [
            MetaProperties(cluster_id="one", node_id=3, directory_id=min(ids(own)), broker_directory_ids=ids(known))
            for own, known in found
        ]
        assert missing_directory_ids(properties, lost=ids(lost)) == ids(missing)


class TestPartitionMetadata:
    def test_partition_metadata_survive_a_round_trip_in_kafkas_format(self, tmp_path) -> None:
        assert read_topic_id(DISK, str(tmp_path)) is None
        write_topic_id(DISK, str(tmp_path), TopicId(ID))
        content = (tmp_path / "partition.metadata").read_text()
        assert content == "version: 0\ntopic_id: kAXi-uhTRZ2xVXcNkFUE-A\n"
        assert read_topic_id(DISK, str(tmp_path)) == ID

    @pytest.mark.parametrize("content", ["", "version: 1\n", "version: 0\n", "version: 0\ntopic_id: !!\n", "x"])
    def test_damaged_partition_metadata_are_an_error_that_names_them(self, tmp_path, content) -> None:
        (tmp_path / "partition.metadata").write_text(content)
        with pytest.raises(PartitionMetadataError, match=r"partition\.metadata"):
            read_topic_id(DISK, str(tmp_path))


class TestLock:
    def test_a_second_holder_is_refused_with_the_path(self, tmp_path) -> None:
        lock = DirectoryLock(DISK, str(tmp_path))
        with pytest.raises(LogDirError, match=f"log directory {tmp_path} is in use"):
            DirectoryLock(DISK, str(tmp_path))
        lock.release()
        DirectoryLock(DISK, str(tmp_path)).release()


class TestCleanShutdown:
    def test_the_clean_shutdown_marker_is_removed_when_it_is_read(self, tmp_path) -> None:
        assert take_clean_shutdown(DISK, str(tmp_path)) is None
        write_clean_shutdown(DISK, str(tmp_path), 17)
        assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":17}'
        assert take_clean_shutdown(DISK, str(tmp_path)) == 17
        assert take_clean_shutdown(DISK, str(tmp_path)) is None

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"version":0}'])
    def test_an_unreadable_marker_has_no_epoch(self, tmp_path, content) -> None:
        (tmp_path / ".kafka_cleanshutdown").write_text(content)
        assert take_clean_shutdown(DISK, str(tmp_path)) == -1


class TestLogConfig:
    def test_the_defaults_of_a_log_config_are_kafkas(self) -> None:
        config = LogConfig.from_configs({})
        assert config == LogConfig()
        assert (config.segment_bytes, config.retention_ms, config.max_message_bytes) == (
            1_073_741_824,
            604_800_000,
            1_048_588,
        )

    def test_a_log_config_is_read_from_configs_by_kafkas_names(self) -> None:
        config = LogConfig.from_configs(
            {
                "segment.bytes": "2000000",
                "retention.ms": "-1",
                "cleanup.policy": "compact, delete",
                "message.timestamp.type": "LogAppendTime",
                "compression.type": "zstd",
                "unclean.leader.election.enable": "true",
                "delete.retention.ms": "7",
                "min.compaction.lag.ms": "8",
                "max.compaction.lag.ms": "9",
                "min.cleanable.dirty.ratio": "0.25",
            }
        )
        assert config.segment_bytes == 2_000_000
        assert config.retention_ms == -1
        assert config.cleanup_policy == ("compact", "delete")
        assert config.message_timestamp_type == LOG_APPEND_TIME
        assert config.compression_type == "zstd"
        assert (config.delete_retention_ms, config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (7, 8, 9)
        assert config.min_cleanable_dirty_ratio == 0.25

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("segment.bytes", "1k"),
            ("cleanup.policy", "shred"),
            ("message.timestamp.type", "Never"),
            ("compression.type", "rar"),
            ("min.cleanable.dirty.ratio", "half"),
        ],
    )
    def test_an_invalid_value_in_a_log_config_is_named(self, name, value) -> None:
        with pytest.raises(ConfigError, match=name):
            LogConfig.from_configs({name: value})

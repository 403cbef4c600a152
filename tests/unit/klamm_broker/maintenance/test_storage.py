"""Tests the storage of a broker through its states: new, open, closed, and never open."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any, cast

import pytest

from klamm_broker.io.record_reader import RecordReader
from klamm_broker.log.dirs.log_directories import stored_cluster_id
from klamm_broker.log.dirs.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.files.storage_failure import LogDirError
from klamm_broker.maintenance.storage import Storage
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.disk import Disk


class Broker:
    """The logs of one start of a broker."""

    def __init__(self, *dirs: Path) -> None:
        self.dirs = tuple(map(str, dirs))
        config = load(BrokerConfig, {"node.id": "1", "log.dirs": ",".join(self.dirs)})
        disk, clock = Disk(), SystemClock()
        self.logs = LogManager(LogManagerConfig.of(config), disk, random.Random(1))
        self.storage = Storage(
            self.logs,
            ReplicaManager(broker_id=1, clock=clock, observer=cast("Any", None)),
            config,
            records=RecordReader(disk, thread_count=1),
            replica_records=cast("Any", None),
            resigner=cast("Any", None),
            hold_offsets=cast("Any", None),
            on_disk_full=lambda log_dir: None,
            disk=disk,
            clock=clock,
        )


def test_the_next_start_finds_the_broker_epoch_of_a_clean_stop(tmp_path: Path) -> None:
    async def run() -> None:
        first = Broker(tmp_path / "a", tmp_path / "b")
        await first.storage.open("c")
        assert len(set(first.storage.log_dir_ids)) == 2
        await first.storage.close(broker_epoch=7)
        second = Broker(tmp_path / "a", tmp_path / "b")
        await second.storage.open("c")
        assert second.logs.directories.clean_shutdown_epoch() == 7
        assert second.storage.log_dir_ids == first.storage.log_dir_ids
        await second.storage.close(broker_epoch=8)

    asyncio.run(run())


def test_only_a_close_after_an_open_writes_the_clean_shutdown_marker(tmp_path: Path) -> None:
    async def run() -> None:
        first = Broker(tmp_path)
        await first.storage.open("c")
        await first.storage.close(broker_epoch=7)
        never_open = Broker(tmp_path)
        await never_open.storage.close(broker_epoch=8)
        third = Broker(tmp_path)
        await third.storage.open("c")
        assert third.logs.directories.clean_shutdown_epoch() == 7
        await third.storage.close(broker_epoch=9)
        await third.storage.close(broker_epoch=10)
        fourth = Broker(tmp_path)
        await fourth.storage.open("c")
        assert fourth.logs.directories.clean_shutdown_epoch() == 9

    asyncio.run(run())


def test_only_dirs_that_failed_since_the_start_are_reported_offline(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "file").write_text("")
        broker = Broker(tmp_path / "a", tmp_path / "file", tmp_path / "b")
        await broker.storage.open("c")
        assert not broker.storage.offline_log_dir_ids()
        broker.logs.directories.at(broker.dirs[2]).log_dir.failure = "broken"
        assert list(broker.storage.offline_log_dir_ids()) == [broker.storage.log_dir_ids[1]]
        await broker.storage.close(broker_epoch=1)

    asyncio.run(run())


def test_another_clusters_dirs_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        first = Broker(tmp_path)
        await first.storage.open("c")
        await first.storage.close(broker_epoch=1)
        assert stored_cluster_id(Disk(), [str(tmp_path / "new"), str(tmp_path)]) == "c"
        other = Broker(tmp_path)
        with pytest.raises(LogDirError, match="cluster"):
            await other.storage.open("d")
        await other.storage.close(broker_epoch=1)

    asyncio.run(run())

"""A partition that this broker leads, with a real log, and the handler that produces to it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from klamm.errors import BrokerError
from klamm.model import TopicId, TopicPartition
from klamm_broker.handlers.late_checks import LateChecks
from klamm_broker.handlers.produce import ACKS_ALL, PartitionRecords, Produce, Produced, ProduceHandler
from klamm_broker.handlers.transaction_guards import TransactionGuards
from klamm_broker.io.record_thread import RecordThread
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.leadership import IsrChange
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.reader_watch import ReaderWatch
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replica.replica_session import SessionWatch
from klamm_broker.replication.record_sync import RecordSyncs
from klamm_server.metadata.entities import PartitionImage
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.disk import Disk
from klamm_server.runtime.waiting import Waiting
from tests.support.log_steps import create_log, open_logs

NAME = TopicPartition("t", 0)
TOPIC_ID = TopicId(uuid.UUID(int=7))
THIS, OTHER = 1, 2


class Observer:
    """An observer that wakes parked produces, notifies the sessions of followers and consumers, and syncs, as the
    broker does."""

    syncs: RecordSyncs

    def __init__(self, produces: PurgatoryDriver, sessions: SessionWatch, readers: ReaderWatch) -> None:
        self._produces = produces
        self._sessions = sessions
        self._readers = readers

    def on_change(self, topic_partition: TopicPartition) -> None:
        self._produces.check_and_complete(topic_partition)
        self._readers.on_change(topic_partition)
        self._sessions.on_change(topic_partition)

    def on_append(self, topic_partition: TopicPartition) -> None:
        self._sessions.on_append(topic_partition)

    def on_sync_owed(self, partition: Partition) -> None:
        self.syncs.begin(partition)

    def on_log_start(self, topic_partition: TopicPartition) -> None:
        self._readers.on_change(topic_partition)
        self._sessions.on_change(topic_partition)

    def on_isr_change(self, partition: Partition, change: IsrChange) -> None:
        pass

    def on_role(self, partition: Partition) -> None:
        pass

    def on_offline(self, topic_id: bytes, partition: int) -> None:
        pass

    def on_no_space(self, topic_id: bytes, partition: int) -> None:
        pass

    def on_disk_full(self, log_dir: LogDir) -> None:
        pass


def led_by(leader: int, leader_epoch: int) -> PartitionImage:
    """Returns the partition's state with both replicas in sync."""
    return PartitionImage(
        partition=0,
        replicas=(THIS, OTHER),
        isr=(THIS, OTHER),
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=leader_epoch,
    )


async def no_coordinator(*_: object) -> dict[TopicPartition, BrokerError]:
    raise AssertionError("there is no transaction")


class LedPartition:
    """The parts of a broker that handle a produce. It leads one partition."""

    def __init__(self, directory: Path, *, disk: Disk | None = None, **config: Any) -> None:
        clock = SystemClock()
        self.produces = PurgatoryDriver(max_parked=10, clock=clock)
        self.sessions = SessionWatch()
        self.readers = ReaderWatch()
        observer = Observer(self.produces, self.sessions, self.readers)
        self.replicas = ReplicaManager(broker_id=THIS, clock=clock, observer=observer)
        self.logs = open_logs(directory, node_id=THIS, disk=disk)
        self.syncs = observer.syncs = RecordSyncs(
            self.logs, on_synced=self.replicas.on_synced, on_disk_full=lambda _: None
        )
        self._config = LogConfig(**config)
        self.partition = self.lead(NAME)
        self.thread = RecordThread("records")
        self.handler = ProduceHandler(
            self.replicas,
            self.produces,
            TransactionGuards(self.replicas, no_coordinator),
            LateChecks(self.thread, clock),
        )

    def lead(self, name: TopicPartition) -> Partition:
        """Hosts a new partition, and leads it."""
        partition = Partition(
            name,
            create_log(self.logs, name, TOPIC_ID, self._config),
            topic_id=TOPIC_ID,
            broker_id=THIS,
            high_watermark=0,
            brokers=self.replicas.brokers,
            lag_time_max_ms=1_000,
        )
        self.replicas.host(partition)
        self.replicas.apply(partition, led_by(THIS, 1))
        return partition

    def produce(self, batch: bytes, acks: int = ACKS_ALL) -> list[Produced] | Waiting[list[Produced]]:
        return self.handler.serve(Produce(acks, 60_000, "", [PartitionRecords(NAME, memoryview(batch))]))

    def close(self) -> None:
        self.produces.close()
        self.syncs.close()
        self.thread.close()

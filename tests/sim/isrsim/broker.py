"""A broker process: the real replica manager, and around it what the service does with requests, answers and timers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.v1 import controller_pb2
from klamm.wire.v1.broker_pb2 import ReplicaFetchRequest
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterResponse,
    ResignReplicasResponse,
)
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.partition.log_flush import FlushJob
from klamm_broker.log.partition.partition_log import ClientAppend
from klamm_broker.replica.delayed_produce import PendingAppend
from klamm_broker.replica.follower_partition import FollowerPartition
from klamm_broker.replica.leaderless_logs import LeaderlessLogs
from klamm_broker.replica.leadership import IsrChange
from klamm_broker.replica.partition import CommittedIsr, Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replica.replica_session import SessionWatch
from klamm_broker.replica.resignations import Resignations
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from tests.sim.isrsim.controller import CLUSTER_ID, TOPIC, TOPIC_ID
from tests.sim.isrsim.network import CONTROLLER
from tests.sim.isrsim.sim_log import SimDisk, SimLog, SimLogConfig, encode
from tests.sim.isrsim.streams import AnswerPort, FollowerStream, LeaderStream
from tests.sim.kit.world import MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klamm.wire.v1.metadata_pb2 import MetadataRecord
    from tests.sim.isrsim.cluster import Cluster

NAME = TopicPartition(TOPIC, 0)
KEY = (TOPIC_ID.bytes, 0)
FULL = "full"
UNKNOWN_EPOCH = -1
LOST = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
"""The controller's answers to the heartbeat of a broker whose epoch it does not know."""

StreamKey = tuple[int, int, int]
"""Follower, its incarnation, its session."""


@dataclass(slots=True)
class PendingProduce:
    """A produce that is appended, but not acknowledged."""

    append: PendingAppend
    offset: int
    sequence: tuple[int, int]
    value: int


class Life:
    """The memory of a process, which is lost when it dies. It observes its replica manager (`ReplicaObserver`)."""

    def __init__(self, broker: SimBroker, incarnation: int, previous_epoch: int) -> None:
        self._broker = broker
        self.incarnation = incarnation
        self.previous_epoch = previous_epoch
        self.epoch = UNKNOWN_EPOCH
        self.is_registering = True
        self.image = MetadataImage.empty()
        self.replicas = ReplicaManager(broker_id=broker.broker_id, clock=broker, observer=self)
        self.watch = SessionWatch()
        self.served: dict[StreamKey, LeaderStream] = {}
        self.rung: dict[LeaderStream, None] = {}
        """The streams that check whether they can answer a request."""
        self.produces: list[PendingProduce] = []
        self.session_id = 0
        self.stream: FollowerStream | None = None
        self.following: FollowerPartition | None = None
        """The leadership that the stream follows."""
        self.refused: IsrChange | None = None
        self.wants_shutdown = False
        self.resignations = Resignations(broker.broker_id)
        self.leaderless = LeaderlessLogs(broker.broker_id)
        self.was_active = False
        self.is_syncing = False

    @property
    def is_up(self) -> bool:
        """True if the broker is registered and knows it."""
        return self.epoch != UNKNOWN_EPOCH and self.replicas.image.end_index > self.epoch

    def on_change(self, topic_partition: TopicPartition) -> None:
        self.watch.on_change(topic_partition)
        self._broker.settle_produces()

    def on_append(self, topic_partition: TopicPartition) -> None:
        self.watch.on_append(topic_partition)

    def on_sync_owed(self, partition: Partition) -> None:
        self._broker.begin_sync(partition)

    def on_log_start(self, topic_partition: TopicPartition) -> None:
        self.watch.on_change(topic_partition)

    def on_isr_change(self, partition: Partition, change: IsrChange) -> None:
        if change is self.refused:
            self._broker.later(self._broker.options.backoff_ms, self._broker.send_change, change)
        else:
            self._broker.send_change(change)

    def on_role(self, partition: Partition) -> None:
        assert partition.image is not None
        self.resignations.note(KEY, partition.image)
        if self.leaderless.note(partition, is_hosted=self.replicas.get(NAME) is partition):
            self._broker.report_logs()
        self._broker.follow(partition)

    def on_offline(self, topic_id: bytes, partition: int) -> None:
        raise AssertionError("no disk fails here")

    def on_no_space(self, topic_id: bytes, partition: int) -> None:
        raise AssertionError("logs are made for nothing here")

    def on_disk_full(self, log_dir: LogDir) -> None:
        if self.resignations.resign(KEY, FULL):
            self._broker.note("has no space, and resigns")
            self._broker.send_resignation()


class SimBroker:
    """A simulated broker. `life` is None while it is down. `log` and `checkpoint` are its disk."""

    def __init__(self, broker_id: int, cluster: Cluster) -> None:
        self.broker_id = broker_id
        self.cluster = cluster
        self.options = cluster.options
        self._world = cluster.world
        self._lives = 0
        self.clean_epoch = UNKNOWN_EPOCH
        """The broker epoch that a controlled shutdown left behind."""
        self.life: Life | None = None
        self.paused_until_us = 0
        self.disk = SimDisk()
        self._delete_log()

    def _delete_log(self) -> None:
        self.log = SimLog(self._log_config(), self.disk)
        self.checkpoint = 0
        """The high watermark as it was stored some time ago."""

    def _log_config(self) -> SimLogConfig:
        if self.options.sync_mean_ms:
            return SimLogConfig(self.options.min_isr, flush_messages=1)
        return SimLogConfig(self.options.min_isr)

    @property
    def partition(self) -> Partition | None:
        return None if self.life is None else self.life.replicas.get(NAME)

    @property
    def present(self) -> Life:
        """The present life of a broker that is up."""
        assert self.life is not None, self.broker_id
        return self.life

    @property
    def now_ms(self) -> int:
        return self._world.now_us // MS

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return 0  # nothing uses the wall clock here

    def note(self, text: str) -> None:
        """Notes what happened, for the story of a violation."""
        self.cluster.note(f"broker {self.broker_id} {text}")

    # Life and death

    def start(self) -> None:
        assert self.life is None
        self._lives += 1
        life = self.life = Life(self, self._lives, self.clean_epoch)
        self.clean_epoch = UNKNOWN_EPOCH
        self.note(f"starts, log end {self.log.log_end_offset}")
        self.log.sync_owed()
        self._register(life)
        self._every(self.options.heartbeat_ms, self.heartbeat)
        self._every(max(1, self.options.heartbeat_ms // 2), self._watch)
        self._every(max(1, self.options.lag_time_max_ms // 2), self.check_lag)
        self._every(100, self._store)

    def crash(self, kept_count: int | None = None) -> None:
        """kill -9, or with `kept_count` a power failure that leaves `kept_count` records."""
        assert self.life is not None
        lost = "" if kept_count is None else f" and keeps {kept_count} of {self.log.log_end_offset} records"
        self.note(f"crashes{lost}")
        self.life = None
        if kept_count is not None and kept_count < self.log.log_end_offset:
            self.log.truncate_to(kept_count, now_ms=0)
        self.checkpoint = min(self.checkpoint, self.log.log_end_offset)
        self.cluster.after_down(self)

    def shut_down(self) -> None:
        """Begins a controlled shutdown."""
        self.present.wants_shutdown = True

    def _stopped(self, life: Life) -> None:
        self.note("stopped")
        life.replicas.resign_all()
        if (partition := life.replicas.get(NAME)) is not None:
            self.checkpoint = partition.high_watermark
        self.clean_epoch = life.epoch
        self.log.flush()
        self.life = None
        self.cluster.after_down(self)

    # Syncs, as `RecordSyncs` runs them

    def begin_sync(self, partition: Partition) -> None:
        """Begins a sync, unless one runs."""
        if self.present.is_syncing:
            return
        self.present.is_syncing = True
        delay_ms = 1 + int(self._world.rng.expovariate(1 / self.options.sync_mean_ms))
        self.later(delay_ms, self._end_sync, partition, self.log.flusher.plan(only_records=True))

    def _end_sync(self, partition: Partition, job: FlushJob) -> None:
        self.present.is_syncing = False
        self.log.flusher.complete(job)
        self.present.replicas.on_synced(partition)
        if self.log.flusher.owes_sync:
            self.begin_sync(partition)

    # Events reach the life that they were meant for, when it is not paused

    def receive(self, life: Life | None, action: Callable[..., None], *args: Any) -> None:
        """`life` None: the process that lives now."""
        if self._world.now_us < self.paused_until_us:
            self._world.after(self.paused_until_us - self._world.now_us, self.receive, life, action, *args)
            return
        if self.life is None or (life is not None and life is not self.life):
            return
        action(*args)
        self.after_event()

    def after_event(self) -> None:
        """Answers whom there is something to say, and has everything checked."""
        if self.life is not None:
            while self.life.rung:
                stream = next(iter(self.life.rung))
                del self.life.rung[stream]
                stream.pump()
        self.cluster.after_step(self)

    def _every(self, period_ms: int, action: Callable[[], None]) -> None:
        self.cluster.every(self, self.present, period_ms, action)

    def later(self, delay_ms: int, action: Callable[..., None], *args: Any) -> None:
        """Runs the action after a delay, unless the broker's process has ended by then."""
        self._world.after(delay_ms * MS, self.receive, self.life, action, *args)

    def _call(self, method: Callable[..., None], request: Any, answer: Callable[..., None]) -> None:
        """Sends a request to the controller. `answer` gets its response, unless the broker's process ends before."""
        life = self.life
        self.cluster.network.send(
            self.broker_id, CONTROLLER, method, request, lambda *args: self.receive(life, answer, *args)
        )

    # Membership

    def _register(self, life: Life) -> None:
        if not life.is_registering:
            return
        request = RegisterBrokerRequest(
            broker_id=self.broker_id,
            incarnation_id=bytes([self.broker_id]) + life.incarnation.to_bytes(15, "big"),
            endpoint=Endpoint(host="broker", port=self.broker_id),
            log_dir_ids=[self.broker_id.to_bytes(16, "big")],
            previous_broker_epoch=life.previous_epoch,
            cluster_id=CLUSTER_ID,
        )
        self._call(self.cluster.controller.register, request, self._registered)
        self.later(self.options.request_timeout_ms, self._register, life)

    def _registered(self, response: RegisterResponse) -> None:
        life = self.present
        life.is_registering = False
        life.epoch = max(life.epoch, response.epoch)  # the answer to a repetition may be an older one
        self._publish()

    def heartbeat(self) -> None:
        """A sign of life, once there is something to serve."""
        life = self.present
        if not life.is_up or life.is_registering:
            return
        request = BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=life.epoch,
            metadata_end_index=life.image.end_index,
            want_shutdown=life.wants_shutdown,
        )
        epoch = life.epoch
        self._look_at_disk()
        self.report_logs()
        self._call(
            self.cluster.controller.heartbeat, request, lambda response: self._heartbeat_answered(epoch, response)
        )

    def _heartbeat_answered(self, epoch: int, response: HeartbeatResponse) -> None:
        life = self.present
        if epoch != life.epoch or life.is_registering:
            return
        if response.error_code in LOST:
            # A registration of a life before was under way all that time, and has ended this one's.
            self.note("is not registered any more")
            life.is_registering = True
            self._register(life)
        elif response.should_shutdown and life.wants_shutdown:
            self._stopped(life)

    # Metadata

    def _watch(self) -> None:
        """The metadata stream, as polls."""
        life = self.present
        delay_us = self.options.metadata_delay_mean_us
        extra_us = int(self._world.rng.expovariate(1 / delay_us)) if delay_us else 0
        self.cluster.network.send(
            self.broker_id,
            CONTROLLER,
            self.cluster.controller.watch,
            self.broker_id,
            life.image.end_index,
            lambda *args: self.receive(life, self.on_metadata, *args),
            extra_us=extra_us,
        )

    def on_metadata(self, base_index: int, records: Sequence[MetadataRecord]) -> None:
        """Applies the records that the controller has written since the last call."""
        life = self.present
        if base_index != life.image.end_index:
            return  # another poll's answer was here first
        life.image = replay(life.image, records, base_index + len(records))
        self._publish()

    def _publish(self) -> None:
        """Brings the replica in line with the image, as `klamm_broker.metadata.metadata_publisher` does."""
        life = self.present
        image = life.image
        if life.epoch == UNKNOWN_EPOCH or image.end_index <= life.epoch:
            return  # an image without this registration may know too little
        life.replicas.note_brokers(image.brokers)
        found = image.partition(TOPIC, 0)
        replica = life.replicas.get(NAME)
        if found is None or self.broker_id not in found.replicas:
            if found is not None and self.log.log_end_offset:
                self.note("deletes its log")
                self._delete_log()
            life.replicas.drop(NAME)
        else:
            if replica is None:
                replica = self._opened()
                life.replicas.host(replica)
            life.replicas.apply(replica, found)
        life.replicas.image = image
        life.watch.on_image()
        is_active = life.replicas.brokers.is_eligible(self.broker_id)
        if is_active and not life.was_active:
            self.report_logs()
        life.was_active = is_active

    def report_logs(self) -> None:
        """Tells the controller where the log ends if the partition has no leader. It runs again and again."""
        life = self.present
        if not life.is_up or not life.replicas.brokers.is_eligible(self.broker_id):
            return
        for request in life.leaderless.requests(life.epoch):
            self._call(self.cluster.controller.report_replica_logs, request, lambda response: None)

    def _opened(self) -> Partition:
        return Partition(
            NAME,
            self.log,  # type: ignore[arg-type]
            topic_id=TOPIC_ID,  # type: ignore[arg-type]
            broker_id=self.broker_id,
            high_watermark=self.checkpoint,
            brokers=self.present.replicas.brokers,
            lag_time_max_ms=self.options.lag_time_max_ms,
        )

    # Producers and consumers

    def produce(self, sequence: tuple[int, int], value: int) -> ErrorCode:
        """Produces a value with acks=all, under (producer, sequence). It is acknowledged later, unless the broker
        refuses it at once."""
        life = self.present
        if any(waiting.sequence == sequence for waiting in life.produces):
            return ErrorCode.NONE
        records = memoryview(encode([(0, *sequence, value)]))
        try:
            partition, appended = life.replicas.append(NAME, ClientAppend(records), acks=-1)
        except BrokerError as error:
            return error.code
        self.cluster.on_append(self)
        pending = PendingAppend(partition, appended.last_offset + 1)
        life.produces.append(PendingProduce(pending, appended.base_offset, sequence, value))
        self.settle_produces()
        return ErrorCode.NONE

    def consume(self) -> None:
        """Reads all there is."""
        partition = self.partition
        if partition is None:
            return
        try:
            partition.check_leader()
            partition.check_high_watermark()
        except BrokerError:
            return
        self.cluster.on_read(self, partition.readable_end_offset(read_committed=False))

    def settle_produces(self) -> None:
        """Answers the producers whose records are committed, or will not be here."""
        life = self.present
        waiting, life.produces = life.produces, []
        for produce in waiting:
            if not produce.append.settle():
                life.produces.append(produce)
            elif produce.append.code == ErrorCode.NONE:
                self.cluster.on_acknowledged(self, produce)

    # Followers of this broker

    def on_stream(self, key: StreamKey, is_first: bool, request: ReplicaFetchRequest, answers: AnswerPort) -> None:
        """Receives a request of a stream. A stream that began in another life of this broker is broken."""
        life = self.present
        if is_first and life.is_up:
            life.served[key] = LeaderStream(self, life, answers)
        if key in life.served:
            life.served[key].on_request(request)

    def end_stream(self, key: StreamKey) -> None:
        """The follower reads no more answers."""
        stream = self.present.served.pop(key, None)
        if stream is not None:
            stream.close()

    # This broker's leader

    def follow(self, partition: Partition) -> None:
        """The partition follows, or does not, or another leader or under another epoch."""
        life = self.present
        if partition.following is life.following:
            return
        life.following = partition.following
        stream = life.stream
        if stream is not None and (partition.following is None or stream.leader.broker_id != partition.leader):
            stream.close()
            life.stream = None
        if partition.following is not None:
            partition.log.sync_owed()
            if life.stream is None:
                life.stream = FollowerStream(self, life, self.cluster.brokers[partition.leader])
            life.stream.follow(partition)

    # The in-sync set

    def check_lag(self) -> None:
        """Called regularly."""
        self.present.replicas.check_lag()

    def send_change(self, change: IsrChange) -> None:
        """Asks the controller for it, and again after a while."""
        life, partition = self.present, self.partition
        if partition is None or not partition.is_pending(change):
            return
        request = AlterPartitionRequest(
            broker_id=self.broker_id,
            broker_epoch=life.epoch,
            partitions=[
                controller_pb2.IsrChange(
                    topic_id=TOPIC_ID.bytes,
                    leader_epoch=change.leader_epoch,
                    partition_epoch=change.partition_epoch,
                    min_isr=self.log.config.min_insync_replicas,
                    new_isr=[
                        controller_pb2.IsrMember(
                            broker_id=member.broker_id,
                            broker_epoch=life.epoch if member.broker_id == self.broker_id else member.broker_epoch,
                        )
                        for member in change.members
                    ],
                )
            ],
        )
        self._call(
            self.cluster.controller.alter_partition,
            request,
            lambda response: self._on_altered(partition, change, response),
        )
        self.later(self.options.request_timeout_ms, self.give_up_change, partition, change)

    def give_up_change(self, partition: Partition, change: IsrChange) -> None:
        """The answer does not come."""
        self._refused(partition, change, ErrorCode.REQUEST_TIMED_OUT)

    def _on_altered(self, partition: Partition, change: IsrChange, response: AlterPartitionResponse) -> None:
        (answer,) = response.partitions or (None,)
        if response.error_code or answer is None:
            return  # a stale broker epoch: this process is fenced, and has to register again
        if answer.error_code:
            self.present.refused = change
            self._refused(partition, change, ErrorCode.of(answer.error_code))
            self.present.refused = None
        else:
            committed = CommittedIsr(answer.leader_epoch, answer.partition_epoch, tuple(answer.isr))
            self.present.replicas.on_isr_committed(partition, change, committed)

    def _refused(self, partition: Partition, change: IsrChange, code: ErrorCode) -> None:
        self.present.replicas.on_isr_refused(partition, change, code)

    # The disk

    def _look_at_disk(self) -> None:
        """Checks the disk, as `klamm_broker.replication.full_disks` does every second."""
        resignations = self.present.resignations
        if KEY in resignations and self.disk.room is None:
            self.note("has space again")
            resignations.resume(KEY, FULL)
        self.send_resignation()

    def send_resignation(self) -> None:
        """Sends the resignations that the controller does not know yet. It is called again and again."""
        life = self.present
        request = life.resignations.next_request(life.replicas.image, broker_epoch=life.epoch)
        if request is None or not life.is_up:
            return

        def answered(response: ResignReplicasResponse) -> None:
            if not response.error_code:
                life.resignations.on_answer(request)

        self._call(self.cluster.controller.resign_replicas, request, answered)

    def _store(self) -> None:
        """The checkpoint, and sometimes a flush."""
        partition = self.partition
        if partition is not None:
            self.checkpoint = partition.high_watermark
            if self._world.rng.random() < 0.3:
                owed = self.log.flusher.owes_sync
                self.log.flush()
                if owed:
                    self.present.replicas.on_synced(partition)

"""A broker process: the real Partition, and around it what the service does with requests, answers and timers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raftsim.world import MS

from isrsim.controller import CLUSTER_ID, TOPIC, TOPIC_ID
from isrsim.network import CONTROLLER
from isrsim.sim_log import SimLog, SimLogConfig, encode
from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.v1 import controller_pb2
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterResponse,
)
from klamm_broker.replica.delayed_produce import PendingAppend
from klamm_broker.replica.follower_partition import FollowerPartition, LeaderAnswer, NextStep
from klamm_broker.replica.leadership import FollowerFetch, IsrChange
from klamm_broker.replica.partition import CommittedIsr, Effects, Partition
from klamm_controller.metadata.electorate import is_active
from klamm_server.metadata.image import MetadataImage, replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isrsim.cluster import Cluster
    from klamm.wire.v1.metadata_pb2 import MetadataRecord

WALL_MS = 1
"""Nobody looks at the wall clock here."""
UNKNOWN_EPOCH = -1


@dataclass(slots=True)
class PendingProduce:
    """A produce that is appended, but not acknowledged."""

    append: PendingAppend
    offset: int
    value: int


@dataclass(slots=True)
class ParkedFetch:
    """A follower's fetch that waits for records or for the time."""

    fetch: FollowerFetch
    high_watermark: int
    answer: Callable[[LeaderAnswer], None]
    is_open: bool = True


class Life:
    """What a process has in memory; gone when it dies."""

    def __init__(self, incarnation: int, previous_epoch: int) -> None:
        self.incarnation = incarnation
        self.previous_epoch = previous_epoch
        self.epoch = UNKNOWN_EPOCH
        self.image = MetadataImage.empty()
        self.partition: Partition | None = None
        self.produces: list[PendingProduce] = []
        self.parked: list[ParkedFetch] = []
        self.session_id = 0
        self.fetching: FollowerPartition | None = None
        """The leadership that is being followed by a fetch under way."""
        self.fetch_token = 0
        self.isr_request: IsrChange | None = None
        self.wants_shutdown = False


class SimBroker:
    """`life` is None while it is down; `log` and `checkpoint` are its disk."""

    def __init__(self, broker_id: int, cluster: Cluster) -> None:
        self.broker_id = broker_id
        self._cluster = cluster
        self._world = cluster.world
        self._options = cluster.options
        self.log = SimLog(SimLogConfig(cluster.options.min_isr))
        self.checkpoint = 0
        """The high watermark as it was stored some time ago."""
        self.clean_epoch = UNKNOWN_EPOCH
        """The broker epoch that a controlled shutdown left behind."""
        self.life: Life | None = None
        self.paused_until_us = 0
        self._lives = 0

    @property
    def partition(self) -> Partition | None:
        return None if self.life is None else self.life.partition

    @property
    def now_ms(self) -> int:
        return self._world.now_us // MS

    # Life and death

    def start(self) -> None:
        assert self.life is None
        self._lives += 1
        life = self.life = Life(self._lives, self.clean_epoch)
        self.clean_epoch = UNKNOWN_EPOCH
        self._cluster.note(f"broker {self.broker_id} starts, log end {self.log.log_end_offset}")
        self._register(life)
        self._every(self._options.heartbeat_ms, self._heartbeat)
        self._every(max(1, self._options.heartbeat_ms // 2), self._watch)
        self._every(max(1, self._options.lag_time_max_ms // 2), self._check_lag)
        self._every(100, self._store)

    def crash(self, kept_count: int | None = None) -> None:
        """kill -9, or with `kept_count` a power failure that leaves so many records."""
        assert self.life is not None
        self._cluster.note(f"broker {self.broker_id} crashes, keeps {kept_count}")
        self.life = None
        if kept_count is not None and kept_count < self.log.log_end_offset:
            self.log.truncate_to(kept_count, now_ms=WALL_MS)
        self.checkpoint = min(self.checkpoint, self.log.log_end_offset)
        self._cluster.after_down(self)

    def shut_down(self) -> None:
        """Begins a controlled shutdown."""
        assert self.life is not None
        self.life.wants_shutdown = True

    def _stopped(self, life: Life) -> None:
        assert life.partition is not None
        self._cluster.note(f"broker {self.broker_id} stopped")
        self.checkpoint = life.partition.high_watermark
        self.clean_epoch = life.epoch
        self.log.flush()
        self.life = None
        self._cluster.after_down(self)

    # Events reach the life that they were meant for, when it is not paused

    def receive(self, life: Life | None, action: Callable[..., None], *args: Any) -> None:
        """`life` None: whoever lives now."""
        if self._world.now_us < self.paused_until_us:
            self._world.after(self.paused_until_us - self._world.now_us, self.receive, life, action, *args)
            return
        if self.life is None or (life is not None and life is not self.life):
            return
        action(*args)
        self._cluster.after_step(self)

    def _every(self, period_ms: int, action: Callable[[], None]) -> None:
        life = self.life

        def tick() -> None:
            if self.life is life:
                self.receive(life, action)
                self._world.after(period_ms * MS, tick)

        self._world.after(self._world.rng.randrange(period_ms * MS), tick)

    def _later(self, delay_ms: int, action: Callable[..., None], *args: Any) -> None:
        self._world.after(delay_ms * MS, self.receive, self.life, action, *args)

    def _call(self, method: Callable[..., None], request: Any, answer: Callable[..., None]) -> None:
        """A request to the controller."""
        life = self.life
        self._cluster.network.send(
            self.broker_id, CONTROLLER, method, request, lambda *args: self.receive(life, answer, *args)
        )

    # Membership

    def _register(self, life: Life) -> None:
        if life.epoch != UNKNOWN_EPOCH:
            return
        request = RegisterBrokerRequest(
            broker_id=self.broker_id,
            incarnation_id=bytes([self.broker_id]) + life.incarnation.to_bytes(15, "big"),
            endpoint=Endpoint(host="broker", port=self.broker_id),
            log_dir_ids=[self.broker_id.to_bytes(16, "big")],
            previous_broker_epoch=life.previous_epoch,
            cluster_id=CLUSTER_ID,
        )
        self._call(self._cluster.controller.register, request, self._registered)
        self._later(self._options.request_timeout_ms, self._register, life)

    def _registered(self, response: RegisterResponse) -> None:
        assert self.life is not None
        self.life.epoch = response.epoch
        self._publish()

    def _heartbeat(self) -> None:
        life = self.life
        assert life is not None
        if life.partition is None:
            return
        request = BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=life.epoch,
            metadata_end_index=life.image.end_index,
            want_shutdown=life.wants_shutdown,
        )
        self._call(self._cluster.controller.heartbeat, request, self._heartbeat_answered)

    def _heartbeat_answered(self, response: HeartbeatResponse) -> None:
        life = self.life
        assert life is not None
        if response.should_shutdown and life.wants_shutdown:
            self._stopped(life)

    def _watch(self) -> None:
        """The metadata stream, as polls."""
        life = self.life
        assert life is not None
        delay_us = self._options.metadata_delay_mean_us
        extra_us = int(self._world.rng.expovariate(1 / delay_us)) if delay_us else 0
        self._cluster.network.send(
            self.broker_id,
            CONTROLLER,
            self._cluster.controller.watch,
            self.broker_id,
            life.image.end_index,
            lambda *args: self.receive(life, self._on_metadata, *args),
            extra_us=extra_us,
        )

    def _on_metadata(self, base_index: int, records: Sequence[MetadataRecord]) -> None:
        life = self.life
        assert life is not None
        if base_index != life.image.end_index:
            return  # another poll's answer was here first
        life.image = replay(life.image, records, base_index + len(records))
        self._publish()

    def _publish(self) -> None:
        """Brings the replica in line with the image."""
        life = self.life
        assert life is not None
        if life.epoch == UNKNOWN_EPOCH or life.image.end_index <= life.epoch:
            return  # an image without this registration may know too little
        image = life.image.partition(TOPIC, 0)
        if image is None:
            return
        if life.partition is None:
            life.partition = Partition(
                TopicPartition(TOPIC, 0),
                self.log,  # type: ignore[arg-type]
                topic_id=TOPIC_ID,
                broker_id=self.broker_id,
                high_watermark=self.checkpoint,
                brokers=self,
                lag_time_max_ms=self._options.lag_time_max_ms,
            )
        self._carry_out(life.partition.apply(image, now_ms=self.now_ms))
        self._wake()
        self._fetch()

    # The leader's metadata of other brokers (klamm_broker.replica.leadership.Brokers)

    def broker_epoch(self, broker_id: int) -> int:
        assert self.life is not None
        broker = self.life.image.brokers.get(broker_id)
        return UNKNOWN_EPOCH if broker is None else broker.broker_epoch

    def is_eligible(self, broker_id: int) -> bool:
        assert self.life is not None
        return is_active(self.life.image.brokers.get(broker_id))

    # Producers and consumers

    def produce(self, value: int) -> None:
        """With acks=all. Whether it is refused is of no interest here."""
        life = self.life
        assert life is not None
        partition = life.partition
        if partition is None:
            return
        try:
            partition.check_leader()
            partition.check_min_isr()
            appended, _ = partition.append(memoryview(encode([(0, value)])), now_ms=WALL_MS)
        except BrokerError:
            return
        self._cluster.on_append(self)
        pending = PendingAppend(partition, appended.last_offset + 1)
        life.produces.append(PendingProduce(pending, appended.base_offset, value))
        self._wake()

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
        self._cluster.on_read(self, partition.readable_end_offset(read_committed=False))

    def _wake(self) -> None:
        """Whoever waits looks again."""
        life = self.life
        assert life is not None
        waiting = []
        for produce in life.produces:
            if not produce.append.settle():
                waiting.append(produce)
            elif produce.append.code == ErrorCode.NONE:
                self._cluster.on_acknowledged(self, produce.offset, produce.value)
        life.produces = waiting
        for parked in tuple(life.parked):
            self._try_answer(parked)

    # The leader and its followers

    def on_fetch(self, fetch: FollowerFetch, answer: Callable[[LeaderAnswer], None]) -> None:
        life = self.life
        assert life is not None
        partition = life.partition
        if partition is None:
            answer(self._failed(fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        try:
            outcome = partition.on_follower_fetch(fetch, now_ms=self.now_ms)
        except BrokerError as error:
            answer(self._failed(fetch, error.code))
            return
        self._carry_out(outcome.effects)
        self._wake()
        if outcome.diverging is not None:
            answer(self._answer(fetch)._replace(diverging=outcome.diverging))
            return
        parked = ParkedFetch(fetch, partition.high_watermark, answer)
        life.parked.append(parked)
        self._try_answer(parked)
        self._later(self._options.fetch_wait_ms, self._give_up, parked)

    def _try_answer(self, parked: ParkedFetch) -> None:
        partition = self.partition
        assert partition is not None
        is_lost = partition.leadership is None or partition.leader_epoch != parked.fetch.current_leader_epoch
        has_news = (
            partition.log.log_end_offset > parked.fetch.fetch_offset or partition.high_watermark > parked.high_watermark
        )
        if is_lost or has_news:
            self._give_up(parked)

    def _give_up(self, parked: ParkedFetch) -> None:
        life = self.life
        assert life is not None
        if not parked.is_open:
            return
        parked.is_open = False
        life.parked.remove(parked)
        partition = life.partition
        assert partition is not None
        try:
            partition.check_leader(parked.fetch.current_leader_epoch)
        except BrokerError as error:
            parked.answer(self._failed(parked.fetch, error.code))
            return
        parked.answer(self._answer(parked.fetch))

    def _answer(self, fetch: FollowerFetch) -> LeaderAnswer:
        partition = self.partition
        assert partition is not None
        return LeaderAnswer(
            error_code=0,
            fetch_offset=fetch.fetch_offset,
            high_watermark=partition.high_watermark,
            log_start_offset=0,
            log_end_offset=self.log.log_end_offset,
            records=self.log.encoded(fetch.fetch_offset, self._options.fetch_records_max),
            diverging=None,
        )

    def _failed(self, fetch: FollowerFetch, code: int) -> LeaderAnswer:
        return LeaderAnswer(
            error_code=code,
            fetch_offset=fetch.fetch_offset,
            high_watermark=-1,
            log_start_offset=0,
            log_end_offset=self.log.log_end_offset,
            records=b"",
            diverging=None,
        )

    # The follower and its leader: one fetch at a time, in a session that ends when an answer does not come

    def _fetch(self) -> None:
        life = self.life
        assert life is not None
        partition = life.partition
        if partition is None or partition.following is None or life.fetching is partition.following:
            return
        following = life.fetching = partition.following
        life.fetch_token += 1
        token = life.fetch_token
        position = following.position
        fetch = FollowerFetch(
            replica_id=self.broker_id,
            broker_epoch=life.epoch,
            session_id=life.session_id,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
        )
        leader = self._cluster.brokers[partition.leader]
        network = self._cluster.network

        def answer(reply: LeaderAnswer) -> None:
            network.send(leader.broker_id, self.broker_id, self.receive, life, self._on_answer, token, reply)

        network.send(self.broker_id, leader.broker_id, leader.receive, None, leader.on_fetch, fetch, answer)
        self._later(self._options.request_timeout_ms + self._options.fetch_wait_ms, self._lose_session, token)

    def _lose_session(self, token: int) -> None:
        life = self.life
        assert life is not None
        if token == life.fetch_token and life.fetching is not None:
            life.session_id += 1
            life.fetching = None
            self._fetch()

    def _on_answer(self, token: int, reply: LeaderAnswer) -> None:
        life = self.life
        assert life is not None
        partition = life.partition
        if token != life.fetch_token or partition is None or life.fetching is not partition.following:
            return
        if life.fetching is None:
            return
        update = partition.on_leader_answer(reply, wall_ms=WALL_MS)
        if update.truncated_from is not None:
            self._cluster.note(f"broker {self.broker_id} cuts {update.truncated_from} to {self.log.log_end_offset}")
        if update.next_step is NextStep.FETCH:
            life.fetching = None
            self._fetch()
        elif update.next_step is NextStep.BACK_OFF:
            self._later(self._options.backoff_ms, self._lose_session, token)

    # The in-sync set

    def _check_lag(self) -> None:
        partition = self.partition
        if partition is not None:
            self._carry_out(partition.check_lag(now_ms=self.now_ms))
            self._wake()

    def _carry_out(self, effects: Effects) -> None:
        if effects.isr_change is not None:
            self._send_change(effects.isr_change)

    def _send_change(self, change: IsrChange) -> None:
        life = self.life
        assert life is not None
        if life.partition is None or not life.partition.is_pending(change):
            return
        request = AlterPartitionRequest(
            broker_id=self.broker_id,
            broker_epoch=life.epoch,
            partitions=[
                controller_pb2.IsrChange(
                    topic_id=TOPIC_ID.bytes,
                    leader_epoch=change.leader_epoch,
                    partition_epoch=change.partition_epoch,
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
            self._cluster.controller.alter_partition, request, lambda response: self._on_altered(change, response)
        )
        self._later(self._options.request_timeout_ms, self._send_change, change)

    def _on_altered(self, change: IsrChange, response: AlterPartitionResponse) -> None:
        partition = self.partition
        assert partition is not None
        (answer,) = response.partitions or (None,)
        if response.error_code or answer is None:
            return  # a stale broker epoch: this process is fenced, and has to register anew
        if answer.error_code:
            effects = partition.on_isr_refused(change, ErrorCode(answer.error_code))
            if effects.isr_change is not None:
                self._later(self._options.backoff_ms, self._send_change, effects.isr_change)
        else:
            committed = CommittedIsr(answer.leader_epoch, answer.partition_epoch, tuple(answer.isr))
            self._carry_out(partition.on_isr_committed(change, committed, now_ms=self.now_ms))
        self._wake()

    # The disk

    def _store(self) -> None:
        """The checkpoint, and sometimes a flush."""
        partition = self.partition
        if partition is None:
            return
        self.checkpoint = partition.high_watermark
        if self._world.rng.random() < 0.3:
            self.log.flush()

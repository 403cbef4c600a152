"""The two ends of a follower's stream to its leader, around the real sessions.

They do the same as `replica_fetch` and `replica_fetcher` of `klamm_broker.replication` do with gRPC. Requests and
answers alternate, in order. An answer waits for records or for the time. If the answer does not arrive, the follower
ends the stream, and the next one names the partition again. The leader may not learn about the end, and then continues
to read the old stream for a while.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from klamm.wire.v1.broker_pb2 import ReplicaFetchHeader, ReplicaFetchRequest
from klamm_broker.log.files.storage_failure import DiskFull
from klamm_broker.replica.follower_partition import LeaderAnswer, NextStep
from klamm_broker.replica.follower_session import FetchBounds, FollowerSession
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_session import ReplicaSession
from klamm_broker.replication.follower_streams import NEWS_LINGER_MS
from tests.sim.isrsim.sim_log import RECORD_BYTES

if TYPE_CHECKING:
    from tests.sim.isrsim.broker import Life, SimBroker
    from tests.sim.isrsim.network import Channel

KEEPALIVE_MS = 2_000
"""The time after which a leader notices the end of a stream that it was not informed about."""


class FollowerStream:
    """Belongs to one life of the follower, and is to one leader."""

    def __init__(self, broker: SimBroker, life: Life, leader: SimBroker) -> None:
        self._broker = broker
        self._life = life
        self.leader = leader
        self._partition: Partition | None = None
        self._is_closed = False
        self._connect()

    def _connect(self) -> None:
        life, network = self._life, self._broker.cluster.network
        life.session_id += 1
        self._key = (self._broker.broker_id, life.incarnation, life.session_id)
        options = self._broker.options
        bounds = FetchBounds(options.fetch_wait_ms, 1, 2**30, options.fetch_records_max * RECORD_BYTES)
        self.session = FollowerSession(
            replica_id=self._broker.broker_id,
            session_id=life.session_id,
            bounds=bounds,
            quota=life.replicas.quotas.follower,
        )
        if self._partition is not None:
            self.session.add(self._partition)
        self._to_leader = network.channel(self._broker.broker_id, self.leader.broker_id)
        self._to_follower = network.channel(self.leader.broker_id, self._broker.broker_id)
        self._sent = self._answered = 0

    def follow(self, partition: Partition) -> None:
        """Follows the partition from its present position."""
        self._partition = partition
        self.session.add(partition)
        self._send_request()

    def close(self) -> None:
        """The partition is followed elsewhere, or not at all."""
        self._is_closed = True
        self._end()

    def _send_request(self) -> None:
        if self._is_closed or not self.session.may_send:
            return
        request = self.session.next_request(broker_epoch=self._life.epoch, now_ms=self._broker.now_ms)
        self._sent += 1
        leader, session = self.leader, self.session
        self._to_leader.send(
            leader.receive, None, leader.on_stream, self._key, self._sent == 1, request, self._answer_to(session)
        )
        wait_ms = self._broker.options.request_timeout_ms + self._broker.options.fetch_wait_ms
        self._broker.later(wait_ms, self._expect, session, self._sent)

    def _answer_to(self, session: FollowerSession) -> AnswerPort:
        return AnswerPort(self._to_follower, self, session)

    def _expect(self, session: FollowerSession, number: int) -> None:
        if self.is_current(session) and self._answered < number:
            self.reconnect()

    def reconnect(self) -> None:
        """Closes this stream, and opens another one."""
        self._end()
        self._connect()
        self._send_request()

    def _end(self) -> None:
        leader, key = self.leader, self._key
        network, world = self._broker.cluster.network, self._broker.cluster.world
        network.send(self._broker.broker_id, leader.broker_id, leader.receive, None, leader.end_stream, key)
        world.after(KEEPALIVE_MS * 1_000, leader.receive, None, leader.end_stream, key)

    @property
    def follower(self) -> tuple[SimBroker, Life]:
        return self._broker, self._life

    def is_current(self, session: FollowerSession) -> bool:
        """True while the stream of this session is open."""
        return session is self.session and not self._is_closed

    def on_message(self, session: FollowerSession, header: ReplicaFetchHeader, records: bytes) -> None:
        """An answer of the leader."""
        if not self.is_current(session):
            return  # gRPC delivers nothing of a call that was cancelled
        self._answered += 1
        for partition, answer in session.on_answer(header, [memoryview(records)] * len(header.partitions)):
            self._apply_answer(partition, answer)
        self._send_request()

    def _apply_answer(self, partition: Partition, answer: LeaderAnswer) -> None:
        session = self.session
        try:
            update = partition.on_leader_answer(answer, wall_ms=0)
        except DiskFull as error:
            self._life.on_disk_full(error.log_dir)
            self._broker.later(self._broker.options.backoff_ms, self._resume, session, partition)
            return
        if update.truncated_from is not None:
            self._broker.note(f"cuts {update.truncated_from} to {partition.log.log_end_offset}")
        if update.next_step is NextStep.AWAIT_METADATA:
            self._partition = None
            session.remove(partition)
        elif update.next_step is NextStep.BACK_OFF:
            self._broker.later(self._broker.options.backoff_ms, self._resume, session, partition)
        elif answer.error_code or len(answer.records) or answer.diverging is not None:
            session.request_again(partition)
        else:
            session.request_if_moved(partition)

    def _resume(self, session: FollowerSession, partition: Partition) -> None:
        if self.is_current(session):
            session.request_again(partition)
            self._send_request()


class AnswerPort:
    """The way of a leader's answers back to their stream."""

    def __init__(self, channel: Channel, stream: FollowerStream, session: FollowerSession) -> None:
        self._channel = channel
        self._stream = stream
        self._session = session

    def send(self, header: ReplicaFetchHeader, records: bytes) -> None:
        stream = self._stream
        broker, life = stream.follower
        self._channel.send(broker.receive, life, stream.on_message, self._session, header, records)


class LeaderStream:
    """Belongs to one life of the leader."""

    def __init__(self, broker: SimBroker, life: Life, answers: AnswerPort) -> None:
        self._broker = broker
        self._life = life
        self._answers = answers
        self._session = ReplicaSession(life.replicas, life.watch, on_ready=self._ring)
        self._requests: deque[ReplicaFetchRequest] = deque()
        self._current: ReplicaFetchRequest | None = None
        self._deadline_ms = 0
        self._lingers = False
        self._is_closed = False

    def on_request(self, request: ReplicaFetchRequest) -> None:
        self._requests.append(request)
        self._ring()

    def close(self) -> None:
        self._is_closed = True
        self._session.close()

    def _ring(self) -> None:
        """Makes the stream check for answers again when the present event is over."""
        self._life.rung[self] = None

    def pump(self) -> None:
        """Answers what can be answered."""
        while not self._is_closed and (self._current is not None or self._requests):
            if self._current is None:
                self._begin(self._requests.popleft())
            if not self._try_answer():
                return

    def _begin(self, request: ReplicaFetchRequest) -> None:
        self._current, self._lingers = request, False
        self._session.on_request(request, now_ms=self._broker.now_ms)
        self._wait(request.max_wait_ms)

    def _wait(self, delay_ms: int) -> None:
        self._deadline_ms = self._broker.now_ms + delay_ms
        self._broker.later(delay_ms, self._ring)

    def _try_answer(self) -> bool:
        session, now_ms = self._session, self._broker.now_ms
        if session.has_changes and not self._lingers:
            self._lingers = True
            if now_ms + NEWS_LINGER_MS < self._deadline_ms:
                self._wait(NEWS_LINGER_MS)
        if not (self._requests or now_ms >= self._deadline_ms or session.has_ready):
            return False
        found = session.locate(2**30, now_ms=now_ms)
        self._current = None
        records = b"".join(piece.where.records for piece in found.slices)  # type: ignore[attr-defined]
        self._answers.send(ReplicaFetchHeader(partitions=session.sent(found, now_ms=now_ms)), records)
        return True

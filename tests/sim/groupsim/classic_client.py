"""A client that uses either protocol: a process of the classic protocol may follow one of the consumer protocol, and
the other way round (KIP-848).

A classic process revokes all its partitions before it joins, unless it is cooperative. A leader gives each partition to
one member that subscribes to its topic.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from klamm.errors import ErrorCode
from klamm.kafka_types.writer import KafkaWriter
from klamm_coordinator.classic.messages import (
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
    SyncReply,
)
from klamm_coordinator.classic.subscription import encode_assignment, read_assignment, read_subscription
from tests.sim.groupsim.client import REQUEST_TIMEOUT_MS, Client

if TYPE_CHECKING:
    from tests.sim.groupsim.mixed_world import MixedWorld

SESSION_TIMEOUT_MS = 12_000
REBALANCE_TIMEOUT_MS = 10_000
NOBODY = -1


class EitherClient(Client):
    """One slot of the world, in which processes of both protocols replace each other."""

    world: MixedWorld

    def __init__(self, world: MixedWorld, number: int, instance_id: str | None) -> None:
        self.is_classic = False
        self.is_cooperative = False
        self.classic_id = ""
        self.generation_id = NOBODY
        self.protocol_name = ""
        super().__init__(world, number, instance_id)

    @property
    def member_id(self) -> str:
        return self.classic_id if self.is_classic else f"c{self.number}-p{self._process}"

    def act(self, rng: random.Random, slow_revocation: float) -> None:
        if not self.is_classic:
            super().act(rng, slow_revocation)
            return
        if self._reply_id is None:
            self._send_classic()
            return
        reply = self.world.replies.pop(self._reply_id, None)
        waits_ms = REQUEST_TIMEOUT_MS + (REBALANCE_TIMEOUT_MS if isinstance(self._asked, JoinGroup) else 0)
        if reply is not None:
            self._reply_id = None
            self._take_classic(reply)
        elif self.world.now_ms >= self._sent_ms + waits_ms:
            self._reply_id = None

    def leave(self) -> None:
        if not self.is_classic:
            super().leave()
            return
        if self.classic_id and (self.instance_id is None or self.world.rng.random() < 0.5):
            leaver = Leaver(member_id=self.classic_id, instance_id=self.instance_id, reason="")
            self.world.ask(LeaveGroup(reply_id=0, group_id=self.world.group_id, leavers=(leaver,)), lost=True)
        self.restart()

    def _start(self) -> None:
        rng = self.world.rng
        self.is_classic = rng.random() < self.world.classic_share
        self.is_cooperative = rng.random() < 0.5
        super()._start()
        self._lose_membership(keeps_id=False)
        if self.is_classic and not self._names:
            self._names, self._regex = ("t", "u"), ""

    def resubscribe(self) -> None:
        if not self.is_classic:
            super().resubscribe()

    def _lose_membership(self, *, keeps_id: bool) -> None:
        self.owned = set()
        self.generation_id = NOBODY
        self._needs_join, self._needs_sync = True, False
        self._topics_version = NOBODY
        self._topics_at_send = self.world.topics
        self._assignments: tuple[tuple[str, bytes], ...] = ()
        self._asked: JoinGroup | SyncGroup | Heartbeat | None = None
        if not keeps_id:
            self.classic_id = ""

    def _send_classic(self) -> None:
        self._sent_ms, self._topics_at_send = self.world.now_ms, self.world.topics
        # Client libraries watch the partitions of their topics, and join again when these change.
        if self._needs_join or self._topics_version != self.world.topics.version:
            self._needs_join, self._topics_version = True, self.world.topics.version
            if not self.is_cooperative:
                self.owned = set()
            self._asked = self._join()
        elif self._needs_sync:
            self._asked = SyncGroup(
                reply_id=0,
                group_id=self.world.group_id,
                generation_id=self.generation_id,
                member_id=self.classic_id,
                instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name=self.protocol_name,
                assignments=self._assignments,
            )
        else:
            self._asked = Heartbeat(
                reply_id=0,
                group_id=self.world.group_id,
                generation_id=self.generation_id,
                member_id=self.classic_id,
                instance_id=self.instance_id,
            )
        self._reply_id = self.world.ask(self._asked)

    def _join(self) -> JoinGroup:
        return JoinGroup(
            reply_id=0,
            group_id=self.world.group_id,
            member_id=self.classic_id,
            instance_id=self.instance_id,
            client_id=f"c{self.number}",
            client_host="/host",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=(Protocol(name="range", metadata=self._metadata()),),
            reason="",
            topics=self.world.topics,
        )

    def _metadata(self) -> bytes:
        writer = KafkaWriter().int16(1).array_size(len(self._names))
        for name in self._names:
            writer.string(name)
        writer.nullable_bytes(None)
        owned = sorted(self.owned)
        writer.array_size(len(owned))
        for one in owned:
            writer.string(self.world._name_of(one)).int32_array((one.partition,))
        return writer.value()

    def _take_classic(self, reply: object) -> None:
        match reply:
            case JoinReply():
                self._take_join(reply)
            case SyncReply():
                self._take_sync(reply)
            case HeartbeatReply(error=ErrorCode.REBALANCE_IN_PROGRESS):
                self._needs_join = True
            case HeartbeatReply(error=error):
                self._take_error(error)

    def _take_join(self, reply: JoinReply) -> None:
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.classic_id = reply.member_id
        elif reply.error is ErrorCode.NONE:
            self.classic_id, self.generation_id = reply.member_id, reply.generation_id
            self.protocol_name, self.is_expelled = reply.protocol_name, False
            self._needs_join, self._needs_sync = False, True
            self._assignments = self._assign(reply) if reply.leader == reply.member_id else ()
        else:
            self._take_error(reply.error)

    def _take_sync(self, reply: SyncReply) -> None:
        if reply.error is not ErrorCode.NONE:
            self._needs_join = True
            self._take_error(reply.error)
            return
        self._needs_sync = False
        # The answer may be late, and name a topic whose name belongs to a later topic now.
        given = self.world.by_id(read_assignment(reply.assignment).partitions, self._topics_at_send)
        for partition in sorted(given - self.owned):
            self.world.check_free(self, partition)
        # A cooperative member that must revoke partitions joins again at once.
        self._needs_join = self.is_cooperative and not self.owned <= given
        self.owned = set(given)

    def _take_error(self, error: ErrorCode) -> None:
        match error:
            case ErrorCode.NONE:
                pass
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
                self._lose_membership(keeps_id=False)
            case ErrorCode.ILLEGAL_GENERATION:
                self._lose_membership(keeps_id=True)

    def _assign(self, reply: JoinReply) -> tuple[tuple[str, bytes], ...]:
        """Returns the assignments of a leader. A partition that a cooperative member owns stays with it."""
        subscriptions = {member.member_id: read_subscription(member.metadata) for member in reply.members}
        owners = {
            tp: member_id for member_id, subscription in sorted(subscriptions.items()) for tp in subscription.owned
        }
        given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in subscriptions}
        for name, info in sorted(self.world.topics.by_name.items()):
            wanted = sorted(
                member_id for member_id, subscription in subscriptions.items() if name in subscription.topics
            )
            for number in range(info.partition_count if wanted else 0):
                owner = owners.get((name, number))  # type: ignore[call-overload]
                taker = owner if owner in wanted else wanted[number % len(wanted)]
                if owner is None or owner == taker:
                    given[taker].setdefault(name, []).append(number)
        return tuple((member_id, encode_assignment(owned, 1)) for member_id, owned in given.items())

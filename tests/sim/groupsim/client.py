"""A member that behaves as a client library: it sends heartbeats, accepts assigned partitions, revokes partitions and
joins again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from klamm.errors import ErrorCode
from klamm_coordinator.kip848.group import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from klamm_coordinator.kip848.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from klamm_coordinator.records.consumer_group_schemas import Partitions, TopicIdPartition

if TYPE_CHECKING:
    from tests.sim.groupsim.world import World

REQUEST_TIMEOUT_MS = 3_000
REBALANCE_TIMEOUT_MS = 20_000
SUBSCRIPTIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("t",), ""),
    (("t", "u"), ""),
    ((), "[tv].*"),
    (("u",), "v[0-9]"),
)
_REJOIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class Client:
    """One slot of the world, in which one process replaces the other. `owned` has the partitions that the process
    believes to own."""

    def __init__(self, world: World, number: int, instance_id: str | None) -> None:
        self.world = world
        self.number = number
        self.instance_id = instance_id
        self.owned: set[TopicIdPartition] = set()
        self.epoch = JOIN_EPOCH
        self.is_expelled = False
        """The coordinator has taken it out, which it does not know yet."""
        self.last_join: ConsumerGroupHeartbeat | None = None
        self._process = 0
        self._doomed: set[TopicIdPartition] = set()
        self._told: Partitions | None = None
        self._reply_id: int | None = None
        self._sent_ms = 0
        self._names, self._regex = world.rng.choice(SUBSCRIPTIONS)
        self._start()

    @property
    def member_id(self) -> str:
        return f"c{self.number}-p{self._process}"

    def act(self, rng: random.Random, slow_revocation: float) -> None:
        """The next thing that it does."""
        now_ms = self.world.now_ms
        if self._reply_id is not None:
            reply = self.world.replies.pop(self._reply_id, None)
            if reply is not None:
                self._reply_id = None
                assert isinstance(reply, ConsumerGroupHeartbeatReply)
                self._take(reply)
            elif now_ms >= self._sent_ms + REQUEST_TIMEOUT_MS:
                self._reply_id, self._is_full = None, True
        elif self._doomed and rng.random() >= slow_revocation:
            self.owned -= self._doomed
            self._doomed = set()
        else:
            self._send()

    def restart(self) -> None:
        """The process dies without a word, and another one begins."""
        self._process += 1
        self._start()

    def leave(self) -> None:
        """Ends the process, and another one begins. A static member may announce that it will return."""
        epoch = STATIC_LEAVE_EPOCH if self.instance_id is not None and self.world.rng.random() < 0.5 else LEAVE_EPOCH
        if self.epoch > JOIN_EPOCH:
            self.world.ask(self._heartbeat(epoch, None, is_full=False), lost=True)
        self.restart()

    def resubscribe(self) -> None:
        """The user subscribes otherwise."""
        self._names, self._regex = self.world.rng.choice(SUBSCRIPTIONS)
        self._is_full = True

    def _start(self) -> None:
        self.owned = set()
        self._join_anew()
        self.last_join = None

    def _join_anew(self) -> None:
        self.owned = set()
        self._doomed = set()
        self.epoch = JOIN_EPOCH
        self.is_expelled = False
        self._is_full = True
        self._told = None
        self._reply_id = None
        self._sent_ms = 0

    def _send(self) -> None:
        owned = frozenset(self.owned)
        joins = self.epoch == JOIN_EPOCH
        is_full = joins or self._is_full
        says = owned if is_full or owned != self._told else None
        request = self._heartbeat(self.epoch, says, is_full=is_full)
        if joins:
            self.last_join = request
        self._told, self._is_full = owned, False
        self._sent_ms = self.world.now_ms
        self._reply_id = self.world.ask(request)

    def _heartbeat(self, epoch: int, owned: Partitions | None, *, is_full: bool) -> ConsumerGroupHeartbeat:
        return ConsumerGroupHeartbeat(
            reply_id=0,
            group_id=self.world.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            subscribed_topic_names=self._names if is_full else None,
            subscribed_topic_regex=self._regex if is_full else None,
            server_assignor=("uniform", "range")[self.number % 2],
            owned=owned,
            client_id=f"c{self.number}",
            client_host="/host",
            topics=self.world.topics,
        )

    def _take(self, reply: ConsumerGroupHeartbeatReply) -> None:
        if reply.error in _REJOIN:
            self._join_anew()
            return
        if reply.error is not ErrorCode.NONE:
            self._is_full = True
            return
        assert reply.member_epoch >= self.epoch, f"{self.member_id}: epoch {self.epoch} -> {reply.member_epoch}"
        self.epoch = reply.member_epoch
        if reply.assignment is None:
            return
        given = {TopicIdPartition(one.topic_id, number) for one in reply.assignment for number in one.partitions}
        self._doomed = self.owned - given
        for partition in sorted(given - self.owned):
            self.world.check_free(self, partition)
        self.owned |= given

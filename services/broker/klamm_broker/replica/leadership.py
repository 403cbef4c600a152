"""The leader's picture of the other replicas for one leader epoch: which are in sync, and what each has.

Kafka's `PartitionState` and the follower half of `Partition` (KIP-497, 841, 903, 966). The in-sync set as the
controller committed it may differ from the one the leader wants: a change is *pending* from when it is proposed until
a newer partition epoch says what became of it, or the controller refuses it without having tried. Meanwhile the high
watermark counts with the *maximal* set, the committed one and the replicas that the change adds: no other replica can
be elected.

A new leader epoch has a new object, so that nothing a follower said to an earlier one counts. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_broker.replica.follower_state import UNKNOWN_EPOCH, FollowerState
from klamm_broker.replica.replica_selector import ReplicaSelector, ReplicaView
from klamm_server.metadata.entities import PartitionImage

_NotLeaderOrFollowerError = EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]


class Brokers(Protocol):
    """What the leader's metadata say of the other brokers."""

    def broker_epoch(self, broker_id: int) -> int:
        """The epoch of its registration, or -1 without one."""

    def is_eligible(self, broker_id: int) -> bool:
        """Whether it may join in-sync sets: registered, neither fenced nor shutting down (KIP-841)."""


class FollowerFetch(NamedTuple):
    """A follower's fetch of one partition, less its bounds. It has every record before `fetch_offset`."""

    replica_id: int
    broker_epoch: int
    session_id: int
    """The number of the follower's stream, which grows with each new stream. Requests of an older stream are late."""
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    """The leader epoch of the follower's last record; -1 if it has none."""
    log_start_offset: int


class IsrMember(NamedTuple):
    """A member of a proposed in-sync set, by the registration that the leader means; -1 for the leader itself."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class IsrChange:
    """A proposal, made once. Its answer is matched by identity."""

    leader_epoch: int
    partition_epoch: int
    """The one that the change builds on."""
    members: tuple[IsrMember, ...]

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(member.broker_id for member in self.members)


class Leadership:
    """A replica's leadership under one leader epoch: its followers, and the in-sync set.

    Invariants: `waited_for` has the followers in the maximal in-sync set and those that are joining it. At most one
    change is pending, and it builds on `partition_epoch`."""

    def __init__(self, *, broker_id: int, leader_epoch: int, start_offset: int, brokers: Brokers) -> None:
        self._broker_id = broker_id
        self._brokers = brokers
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        """Where the log ended when this epoch began."""
        self.partition_epoch = -1
        self.followers: dict[int, FollowerState] = {}
        self.isr: tuple[int, ...] = ()
        """The committed one."""
        self._resigned: tuple[int, ...] = ()
        """They do not want to join it."""
        self.pending: IsrChange | None = None
        self.waited_for: tuple[FollowerState, ...] = ()
        """The high watermark is what all of these have, and the leader itself."""

    def commit(self, image: PartitionImage, *, now_ms: int) -> None:
        """The controller's state; a newer partition epoch than the one known ends a pending change.

        A follower it puts in sync that has not fetched yet is given the time that all others have."""
        assert image.partition_epoch >= self.partition_epoch, (image, self.partition_epoch)
        others = [replica for replica in image.replicas if replica != self._broker_id]
        known = self.followers
        self.followers = {one: known.get(one) or FollowerState(one) for one in others}
        for replica in image.isr:
            if replica in self.followers and replica not in self.isr:
                state = self.followers[replica]
                state.caught_up_ms = max(state.caught_up_ms, now_ms)
        self.isr, self._resigned = image.isr, image.resigned_replicas
        for replica in self._resigned:
            if replica in self.followers:
                self.followers[replica].is_joining = False
        if image.partition_epoch > self.partition_epoch:
            self.partition_epoch = image.partition_epoch
            self.pending = None
        self._count()

    def refuse(self, change: IsrChange) -> None:
        """The controller refused the pending change without having tried it: the committed set holds."""
        assert change is self.pending, change
        self.pending = None
        self._count()

    @property
    def replica_count(self) -> int:
        return 1 + len(self.followers)

    def effective_min_isr(self, min_insync_replicas: int) -> int:
        """`min.insync.replicas`, or all replicas where there are fewer."""
        return min(min_insync_replicas, self.replica_count)

    def refusal(self, min_insync_replicas: int) -> str:
        """Why this leader takes no records with acks=all, in a word; empty: it does."""
        if self._broker_id in self._resigned:
            return "resigned"
        return "" if len(self.isr) >= self.effective_min_isr(min_insync_replicas) else "below_min_isr"

    @property
    def maximal_isr(self) -> frozenset[int]:
        return frozenset(self.isr if self.pending is None else (*self.isr, *self.pending.isr))

    def committed_offset(self, log_end_offset: int) -> int:
        """What everybody has who is waited for; -1 while one of them has not fetched."""
        end_offset = log_end_offset
        for state in self.waited_for:
            if state.end_offset < end_offset:
                end_offset = state.end_offset
        return end_offset

    def low_watermark(self, log_start_offset: int, live_brokers: frozenset[int]) -> int:
        """Below it every replica on a live broker has deleted its records; -1 while one of them has not said.

        `log_start_offset` is of the leader's own log."""
        followers = self.followers.values()
        return min((log_start_offset, *(one.log_start_offset for one in followers if one.broker_id in live_brokers)))

    def closer_replica(
        self, fetch_offset: int, log_end_offset: int, client_rack: str, selector: ReplicaSelector
    ) -> int | None:
        """The follower that a consumer in `client_rack` should ask for `fetch_offset` (KIP-392); None: this leader.

        Only those in sync: a replica that lags would hold the reader up, and the leader would send it back there for
        ever."""
        views = [
            ReplicaView(state.broker_id, False, state.end_offset, state.caught_up_ms)
            for state in self.followers.values()
            if state.broker_id in self.isr and state.log_start_offset <= fetch_offset <= state.end_offset
        ]
        views.append(ReplicaView(self._broker_id, True, log_end_offset, 0))
        chosen = selector(client_rack, views)
        return None if chosen is None or chosen.is_leader else chosen.broker_id

    # Followers

    def on_fetch(self, fetch: FollowerFetch, *, log_end_offset: int, now_ms: int, lag_time_max_ms: int) -> None:
        """Believes what a follower says it has. Raises NotLeaderOrFollowerError when it is no replica, or is late."""
        state = self.followers.get(fetch.replica_id)
        if state is None:
            raise _NotLeaderOrFollowerError(
                f"broker {fetch.replica_id} is not a follower of this partition; expected one of"
                f" {sorted(self.followers)}"
            )
        if (fetch.broker_epoch, fetch.session_id) < (state.broker_epoch, state.session_id):
            raise _NotLeaderOrFollowerError(
                f"broker {fetch.replica_id} fetches with epoch {fetch.broker_epoch}, session {fetch.session_id};"
                f" expected epoch {state.broker_epoch}, session {state.session_id} or later"
            )
        state.broker_epoch, state.session_id = fetch.broker_epoch, fetch.session_id
        state.on_fetch(
            end_offset=fetch.fetch_offset,
            log_start_offset=fetch.log_start_offset,
            leader_end_offset=log_end_offset,
            now_ms=now_ms,
        )
        self._note_joining([state], log_end_offset, now_ms, lag_time_max_ms)

    def _note_joining(
        self, states: Iterable[FollowerState], log_end_offset: int, now_ms: int, lag_time_max_ms: int
    ) -> None:
        changed = False
        for state in states:
            is_joining = (
                state.broker_id not in self.isr
                and self._is_eligible(state)
                and state.is_caught_up(log_end_offset, now_ms=now_ms, lag_time_max_ms=lag_time_max_ms)
            )
            changed |= is_joining != state.is_joining
            state.is_joining = is_joining
        if changed:
            self._count()

    def _count(self) -> None:
        maximal = self.maximal_isr
        self.waited_for = tuple(
            state for state in self.followers.values() if state.is_joining or state.broker_id in maximal
        )

    def _is_eligible(self, state: FollowerState) -> bool:
        """Whether the very process that fetched may join (KIP-903): a later life may have lost its log."""
        return (
            state.broker_id not in self._resigned
            and state.broker_epoch != UNKNOWN_EPOCH
            and state.broker_epoch == self._brokers.broker_epoch(state.broker_id)
            and self._brokers.is_eligible(state.broker_id)
        )

    # Changes of the in-sync set

    def maybe_expand(self, high_watermark: int) -> IsrChange | None:
        """Proposes to add who has everything that is committed, and all that this epoch began with."""
        if self.pending is not None or len(self.isr) == self.replica_count:
            return None
        if not all(one == self._broker_id or self._brokers.is_eligible(one) for one in self.isr):
            return None  # the controller refuses a set with a member that is about to leave
        needed_offset = max(high_watermark, self.start_offset)
        joining = [
            state.broker_id
            for state in self.followers.values()
            if state.broker_id not in self.isr and state.end_offset >= needed_offset and self._is_eligible(state)
        ]
        return self._propose((*self.isr, *joining)) if joining else None

    def maybe_shrink(self, *, log_end_offset: int, now_ms: int, lag_time_max_ms: int) -> IsrChange | None:
        """Proposes to remove who has not been caught up for longer than `lag_time_max_ms`. Called regularly."""
        self._note_joining(self.followers.values(), log_end_offset, now_ms, lag_time_max_ms)
        if self.pending is not None:
            return None
        lagging = {
            replica
            for replica in self.isr
            if replica in self.followers
            and not self.followers[replica].is_caught_up(log_end_offset, now_ms=now_ms, lag_time_max_ms=lag_time_max_ms)
        }
        return self._propose(tuple(one for one in self.isr if one not in lagging)) if lagging else None

    def _propose(self, isr: tuple[int, ...]) -> IsrChange:
        members = tuple(IsrMember(replica, self._broker_epoch_of(replica)) for replica in isr)
        self.pending = IsrChange(self.leader_epoch, self.partition_epoch, members)
        self._count()
        return self.pending

    def _broker_epoch_of(self, replica: int) -> int:
        state = self.followers.get(replica)
        if state is None:
            return UNKNOWN_EPOCH
        return state.broker_epoch if state.broker_epoch != UNKNOWN_EPOCH else self._brokers.broker_epoch(replica)

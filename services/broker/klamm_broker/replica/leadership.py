"""The leader's view of the other replicas for one leader epoch: which are in sync, and which records each has.

Kafka's `PartitionState` and the follower half of `Partition` (KIP-497, 841, 903, 966). The in-sync set that the
controller committed may differ from the set that the leader wants. A proposed change is *pending* until a newer
partition epoch shows its outcome, or the controller refuses it without trying. While a change is pending, the high
watermark counts the *maximal* set: the committed set and the replicas that the change adds. No other replica can be
elected.

A new leader epoch gets a new object, so that reports which followers sent under an earlier epoch do not count. Pure.
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
    """The states of the other brokers in the leader's metadata."""

    def broker_epoch(self, broker_id: int) -> int:
        """Returns the epoch of the broker's registration, or -1 if it is not registered."""

    def is_eligible(self, broker_id: int) -> bool:
        """Returns True if the broker may join in-sync sets: it is registered, and neither fenced nor shutting down
        (KIP-841)."""


class FollowerFetch(NamedTuple):
    """A follower's fetch of one partition, without its limits. The follower has all records before `fetch_offset`."""

    replica_id: int
    broker_epoch: int
    session_id: int
    """The number of the follower's stream, larger for each new stream. Requests of older streams are refused."""
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    """The leader epoch of the follower's last record, or -1 without records."""
    log_start_offset: int


class IsrMember(NamedTuple):
    """A member of a proposed in-sync set, and the epoch of the registration that the leader means. The epoch is -1 for
    the leader itself."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class IsrChange:
    """A proposed change of an in-sync set. Its answer is matched by the object's identity."""

    leader_epoch: int
    partition_epoch: int
    """The partition epoch that the change is based on."""
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
        """The log end offset at the start of this leader epoch."""
        self.partition_epoch = -1
        self.followers: dict[int, FollowerState] = {}
        self.isr: tuple[int, ...] = ()
        """The in-sync set that the controller committed."""
        self._resigned: tuple[int, ...] = ()
        """The replicas that have resigned and do not want to join the in-sync set."""
        self.pending: IsrChange | None = None
        self.waited_for: tuple[FollowerState, ...] = ()
        """The followers that the high watermark waits for. All of them and the leader have the records below it."""

    def commit(self, image: PartitionImage, *, now_ms: int) -> None:
        """Applies the controller's state of the partition. A newer partition epoch ends a pending change.

        A follower that becomes in sync before it has fetched counts as caught up now, so that it gets
        `replica.lag.time.max.ms` to fetch."""
        assert image.partition_epoch >= self.partition_epoch, (image, self.partition_epoch)
        others = [replica for replica in image.replicas if replica != self._broker_id]
        known = self.followers
        self.followers = {other: known.get(other) or FollowerState(other) for other in others}
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
        """Drops the pending change, because the controller refused it without trying it. The committed set stays
        valid."""
        assert change is self.pending, change
        self.pending = None
        self._count()

    @property
    def replica_count(self) -> int:
        return 1 + len(self.followers)

    def effective_min_isr(self, min_insync_replicas: int) -> int:
        """Returns `min.insync.replicas`, or the number of replicas if that is smaller."""
        return min(min_insync_replicas, self.replica_count)

    def refusal(self, min_insync_replicas: int) -> str:
        """Returns the reason why this leader refuses records with acks=all, in one word, or "" if it accepts them."""
        if self._broker_id in self._resigned:
            return "resigned"
        return "" if len(self.isr) >= self.effective_min_isr(min_insync_replicas) else "below_min_isr"

    @property
    def maximal_isr(self) -> frozenset[int]:
        return frozenset(self.isr if self.pending is None else (*self.isr, *self.pending.isr))

    def committed_offset(self, own_offset: int) -> int:
        """Returns the end offset that the leader (`own_offset`) and all `waited_for` followers have reached, or -1 if
        one of them has not fetched."""
        end_offset = own_offset
        for state in self.waited_for:
            if state.end_offset < end_offset:
                end_offset = state.end_offset
        return end_offset

    def low_watermark(self, log_start_offset: int, live_brokers: frozenset[int]) -> int:
        """Returns the lowest log start offset of the replicas on live brokers, or -1 if one of them has not fetched.
        `log_start_offset` is the leader's own."""
        followers = self.followers.values()
        return min(
            (
                log_start_offset,
                *(follower.log_start_offset for follower in followers if follower.broker_id in live_brokers),
            )
        )

    def closer_replica(
        self, fetch_offset: int, log_end_offset: int, client_rack: str, selector: ReplicaSelector
    ) -> int | None:
        """Returns the follower that a consumer in `client_rack` should fetch `fetch_offset` from, or None for this
        leader (KIP-392).

        Only replicas in sync are candidates. A replica that lags would delay the reader, and the leader would send the
        reader back to it for ever."""
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
        """Records the positions of a follower's fetch. Raises NotLeaderOrFollowerError if the broker has no replica, or
        if its fetch belongs to an older registration or session."""
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
        """Returns True if the process that fetched may join the in-sync set (KIP-903). After a restart, the broker may
        have lost its log."""
        return (
            state.broker_id not in self._resigned
            and state.broker_epoch != UNKNOWN_EPOCH
            and state.broker_epoch == self._brokers.broker_epoch(state.broker_id)
            and self._brokers.is_eligible(state.broker_id)
        )

    # Changes of the in-sync set

    def maybe_expand(self, high_watermark: int) -> IsrChange | None:
        """Proposes to add followers that have all committed records and all records from before this leader epoch.
        Returns None if there is none to add."""
        if self.pending is not None or len(self.isr) == self.replica_count:
            return None
        if not all(replica == self._broker_id or self._brokers.is_eligible(replica) for replica in self.isr):
            return None  # the controller refuses a set with a member that is fenced or shutting down
        needed_offset = max(high_watermark, self.start_offset)
        joining = [
            state.broker_id
            for state in self.followers.values()
            if state.broker_id not in self.isr and state.end_offset >= needed_offset and self._is_eligible(state)
        ]
        return self._propose((*self.isr, *joining)) if joining else None

    def maybe_shrink(self, *, log_end_offset: int, now_ms: int, lag_time_max_ms: int) -> IsrChange | None:
        """Proposes to remove followers that have not been caught up for longer than `lag_time_max_ms`, or returns None.
        Called regularly."""
        self._note_joining(self.followers.values(), log_end_offset, now_ms, lag_time_max_ms)
        if self.pending is not None:
            return None
        lagging = {
            replica
            for replica in self.isr
            if replica in self.followers
            and not self.followers[replica].is_caught_up(log_end_offset, now_ms=now_ms, lag_time_max_ms=lag_time_max_ms)
        }
        return self._propose(tuple(replica for replica in self.isr if replica not in lagging)) if lagging else None

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

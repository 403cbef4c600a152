"""Known mistakes of partition replication, planted to prove that the simulation would see them. Only tests ever do.

Most cost Kafka, or a model of it, acknowledged records once: the KIPs are named.
"""

from __future__ import annotations

from typing import Any

from raftsim.mutations import Mutation

from isrsim.broker import SimBroker
from klamm_broker.replica.follower_partition import (
    EpochEnd,
    FollowerUpdate,
    LeaderAnswer,
    NextStep,
)
from klamm_broker.replica.follower_state import FollowerState
from klamm_broker.replica.leadership import IsrChange, Leadership
from klamm_broker.replica.partition import Effects, Partition
from klamm_controller.metadata import alter_partition, partition_change
from klamm_server.metadata.image import PartitionImage


def _cut_to_high_watermark(self: Partition, image: PartitionImage, *, now_ms: int) -> Effects:
    before = self.following
    effects = _apply(self, image, now_ms=now_ms)
    if self.following is not None and self.following is not before:
        self.log.truncate_to(self.high_watermark, now_ms=now_ms)
    return effects


_apply = Partition.apply


def _never_diverges(self: Partition, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
    return None


def _minimal_isr(self: Leadership) -> frozenset[int]:
    return frozenset(self.isr if self.pending is None else set(self.isr) & set(self.pending.isr))


def _committed_isr(self: Leadership) -> frozenset[int]:
    return frozenset(self.isr)


def _proposed_isr(self: Leadership) -> frozenset[int]:
    return frozenset(self.isr if self.pending is None else self.pending.isr)


def _join_anywhere(self: Leadership, high_watermark: int) -> IsrChange | None:
    if self.pending is not None or len(self.isr) == self.replica_count:
        return None
    joining = [
        state.broker_id
        for state in self.followers.values()
        if state.broker_id not in self.isr and state.end_offset >= 0 and self._is_eligible(state)
    ]
    return self._propose((*self.isr, *joining)) if joining else None


def _join_at_high_watermark(self: Leadership, high_watermark: int) -> IsrChange | None:
    if self.pending is not None or len(self.isr) == self.replica_count:
        return None
    joining = [
        state.broker_id
        for state in self.followers.values()
        if state.broker_id not in self.isr and state.end_offset >= high_watermark and self._is_eligible(state)
    ]
    return self._propose((*self.isr, *joining)) if joining else None


def _anybody_is_eligible(self: Leadership, state: FollowerState) -> bool:
    return True


def _nobody_is_ineligible(member: Any, partition: PartitionImage, image: Any) -> str:
    return ""


def _no_strict_min_isr(self: Partition) -> bool:
    leadership = self.leadership
    if leadership is None:
        return False
    committed = leadership.committed_offset(self.log.log_end_offset)
    if committed <= self.high_watermark:
        return False
    self.high_watermark = committed
    return True


def _keeps_last_in_sync(self: Any, isr: tuple[int, ...], lost: Any) -> None:
    _set_isr(self, isr, ())


_set_isr = partition_change._Target.set_isr


def _elr_forgets_nothing(self: Any, min_isr: int, lost: Any) -> None:
    _set_elr(self, min_isr, ())


_set_elr = partition_change._Target.set_elr


def _elr_for_ever(self: Any, min_isr: int, lost: Any) -> None:
    _set_elr(self, 1 << 30, lost)


def _serves_offsets_at_once(self: Partition) -> None:
    pass


def _two_fetches(self: SimBroker, token: int, reply: LeaderAnswer) -> None:
    """Answers of sessions that ended are believed."""
    life = self.life
    assert life is not None
    if life.partition is None or life.partition.following is None:
        return
    update = FollowerUpdate(NextStep.FETCH, 0)
    if reply.fetch_offset == self.log.log_end_offset:
        update = life.partition.on_leader_answer(reply, wall_ms=1)
    if token == life.fetch_token:
        life.fetching = None
        if update.next_step is NextStep.FETCH:
            self._fetch()


MUTATIONS: dict[str, Mutation] = {
    "cut-to-high-watermark": Mutation(
        what="a new follower cuts its log to its high watermark (before KIP-101)",
        known_seed=0,
        changes=((Partition, "apply", _cut_to_high_watermark),),
    ),
    "no-divergence": Mutation(
        what="a leader does not compare epochs with a follower's log (before KIP-101)",
        known_seed=0,
        changes=((Partition, "divergence", _never_diverges),),
    ),
    "answers-of-old-sessions": Mutation(
        what="a follower believes answers of sessions that it gave up, and of leaders that it left",
        known_seed=2,
        changes=((SimBroker, "_on_answer", _two_fetches),),
    ),
    "minimal-isr": Mutation(
        what="the high watermark counts who is in the committed set and in the proposed one (KIP-497)",
        known_seed=2,
        changes=((Leadership, "maximal_isr", property(_minimal_isr)),),
    ),
    "committed-isr": Mutation(
        what="the high watermark does not wait for who is being added (KIP-497)",
        known_seed=2,
        changes=((Leadership, "maximal_isr", property(_committed_isr)),),
    ),
    "proposed-isr": Mutation(
        what="the high watermark does not wait for who is being removed (KIP-497)",
        known_seed=5,
        changes=((Leadership, "maximal_isr", property(_proposed_isr)),),
    ),
    "join-anywhere": Mutation(
        what="a follower joins the in-sync set wherever it stands",
        known_seed=0,
        changes=((Leadership, "maybe_expand", _join_anywhere),),
    ),
    "join-at-high-watermark": Mutation(
        what="a follower joins the in-sync set without what the leader's epoch began with",
        known_seed=54,
        changes=((Leadership, "maybe_expand", _join_at_high_watermark),),
    ),
    "fenced-members": Mutation(
        what="nobody refuses fenced brokers and old registrations in in-sync sets (KIP-841, KIP-903)",
        known_seed=160,
        changes=(
            (Leadership, "_is_eligible", _anybody_is_eligible),
            (alter_partition, "_why_ineligible", _nobody_is_ineligible),
        ),
    ),
    "no-strict-min-isr": Mutation(
        what="the high watermark moves with fewer than min.insync.replicas (KIP-966)",
        known_seed=0,
        changes=((Partition, "maybe_advance_high_watermark", _no_strict_min_isr),),
    ),
    "unclean-stop-ignored": Mutation(
        what="a broker that stopped uncleanly stays in sync and eligible (KIP-966)",
        known_seed=60,
        changes=(
            (partition_change._Target, "set_isr", _keeps_last_in_sync),
            (partition_change._Target, "set_elr", _elr_forgets_nothing),
        ),
    ),
    "eligible-for-ever": Mutation(
        what="replicas stay eligible although enough others are in sync (KIP-966)",
        known_seed=0,
        changes=((partition_change._Target, "set_elr", _elr_for_ever),),
    ),
    "early-offsets": Mutation(
        what="a new leader tells consumers its high watermark before it reached the start of its epoch",
        known_seed=0,
        changes=((Partition, "check_high_watermark", _serves_offsets_at_once),),
    ),
}

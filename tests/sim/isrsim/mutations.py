"""Known mistakes of partition replication, planted to prove that the simulation would see them. Only tests ever do.

Most cost Kafka, or a model of it, acknowledged records once: the KIPs are named. Random seeds hardly ever find some of
them: stories do.
"""

from __future__ import annotations

from typing import Any

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_broker.log.producers.producer_state import ProducerStates
from klamm_broker.replica.follower_partition import LogEpochEnd
from klamm_broker.replica.follower_session import FollowerSession
from klamm_broker.replica.follower_state import FollowerState
from klamm_broker.replica.leadership import IsrChange, Leadership
from klamm_broker.replica.partition import NO_EFFECTS, Partition, PartitionEffects
from klamm_controller.metadata import alter_partition, leader_election, partition_change, unclean_recovery
from klamm_controller.metadata.brokers import BrokerRegistration
from klamm_controller.metadata.electorate import Electorate, RecoveryStrategy
from klamm_controller.metadata.replica_logs import ReplicaLogs, most_complete
from klamm_server.metadata import replay as replay_module
from klamm_server.metadata.entities import NO_LEADER, PartitionImage
from tests.sim.isrsim.streams import FollowerStream
from tests.sim.kit.mutation import Mutation


def _cut_to_high_watermark(self: Partition, image: PartitionImage, *, now_ms: int) -> PartitionEffects:
    before = self.following
    effects = _apply(self, image, now_ms=now_ms)
    if self.following is not None and self.following is not before:
        self.log.truncate_to(self.high_watermark, now_ms=now_ms)
    return effects


_apply = Partition.apply


def _never_diverges(self: Partition, last_fetched_epoch: int, fetch_offset: int) -> LogEpochEnd | None:
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


def _any_message(self: FollowerStream, session: FollowerSession, header: Any, records: bytes) -> None:
    _on_message(self, session, header, records)
    if session is not self.session:
        for partition, answer in session.on_answer(header, [memoryview(records)] * len(header.partitions)):
            if partition.following is not None:
                self._apply_answer(partition, answer)


_on_message = FollowerStream.on_message


def _unmatched_answers(self: FollowerSession, header: Any, records: Any) -> Any:
    for followed in self._followed.values():
        followed.requested_in = min(followed.requested_in, 1)
    return _on_answer(self, header, records)


_on_answer = FollowerSession.on_answer


def _any_epoch(self: Partition, current_leader_epoch: int = -1) -> Leadership:
    return _check_leader(self)


_check_leader = Partition.check_leader


def _any_reader(self: Partition, current_leader_epoch: int, fetch_offset: int, *, from_follower: bool) -> None:
    self._check_epoch(current_leader_epoch)
    if self.following is None:
        self.check_leader()
    elif fetch_offset > self.log.log_end_offset:
        raise EXCEPTIONS[ErrorCode.OFFSET_NOT_AVAILABLE]("it is not here yet")


def _end_without_epoch(self: Partition, last_fetched_epoch: int, fetch_offset: int) -> LogEpochEnd | None:
    if last_fetched_epoch < 0:
        return None
    end_offset = self.epoch_end(last_fetched_epoch).end_offset
    return LogEpochEnd(last_fetched_epoch, end_offset) if 0 <= end_offset < fetch_offset else None


def _any_refusal_ends(self: Partition, change: IsrChange, code: ErrorCode) -> PartitionEffects:
    if not self.is_pending(change):
        return NO_EFFECTS
    return _on_isr_refused(self, change, ErrorCode.OPERATION_NOT_ATTEMPTED)


_on_isr_refused = Partition.on_isr_refused


def _refusal_of_any_change(self: Partition, change: IsrChange, code: ErrorCode) -> PartitionEffects:
    pending = None if self.leadership is None else self.leadership.pending
    return NO_EFFECTS if pending is None else _on_isr_refused(self, pending, code)


def _any_image_ends(self: Leadership, image: PartitionImage, *, now_ms: int) -> None:
    self.pending = None
    _commit(self, image, now_ms=now_ms)


_commit = Leadership.commit


def _eligible_in_any_life(self: Leadership, state: FollowerState) -> bool:
    return state.broker_epoch >= 0 and self._brokers.is_eligible(state.broker_id)


def _newest_epoch(self: Leadership, replica: int) -> int:
    return self._brokers.broker_epoch(replica)


def _any_life(member: Any, partition: PartitionImage, image: Any) -> str:
    problem = _why_ineligible(member, partition, image)
    return "" if "has epoch" in problem else problem


_why_ineligible = alter_partition._why_ineligible


def _isr_as_asked(self: Any, isr: tuple[int, ...], lost: Any) -> None:
    self._isr = tuple(broker_id for broker_id in isr if broker_id not in lost)


def _not_cut(self: ProducerStates, offset: int) -> bool:
    return True


def _cut_short(self: ProducerStates, offset: int) -> bool:
    for number, producer in list(self._producers.items()):
        while producer.runs and producer.runs[-1].base_offset >= offset:
            producer.runs.pop()
        if not producer.runs:
            del self._producers[number]
            continue
        last = producer.runs[-1]
        producer.runs[-1] = last._replace(record_count=min(last.record_count, offset - last.base_offset))
    return True


def _any_sequence(self: ProducerStates, headers: Any, **_: Any) -> None:
    return None


def _same_epoch(before: PartitionImage, record: Any) -> PartitionImage:
    return _changed_partition(before, record)._replace(leader_epoch=before.leader_epoch)


_changed_partition = replay_module.changed_partition


def _unclean_if_needed(self: Electorate, topic: str) -> RecoveryStrategy:
    return RecoveryStrategy.AGGRESSIVE


def _last_leader(partition: PartitionImage, electorate: Electorate, logs: Any) -> int:
    return partition.last_known_elr[0]


def _first_to_report(topic: Any, partition: PartitionImage, electorate: Electorate, logs: Any) -> int:
    if partition.isr or partition.elr or not partition.last_known_elr:
        return NO_LEADER
    live = electorate.live_replicas(partition)
    return most_complete(partition, electorate, {one: log for one, log in logs.items() if one in live})


def _of_any_life(self: ReplicaLogs, key: Any, partition: PartitionImage, image: Any) -> Any:
    reported = self._logs.get(key, {})
    return {broker_id: log for broker_id, log in reported.items() if broker_id in partition.replicas}


def _forgets_the_lost(self: Any) -> Any:
    return _last_known(self)[:1] if self._leader == NO_LEADER else ()


_last_known = partition_change._Target._last_known


def _complete_at_once(self: Any) -> None:
    staying = partition_change._without(self.replicas, self._removing)
    if self._removing and staying:
        self.replicas = staying
        self._isr = partition_change._without(self._isr, self._removing)
        self._adding = self._removing = ()


def _leaves_under_same_epoch(self: Any, topic: Any) -> Any:
    record = _record(self, topic)
    if record is not None and self._leader == self._before.leader:
        record.partition_change.ClearField("leader")
    return record


_record = partition_change._Target.record


def _forgets_the_rest(sweep: Any, image: Any, electorate: Electorate) -> Any:
    changes, _ = _begin(sweep, image, electorate)
    return changes, None


_begin = leader_election._begin


def _registers_at_once(self: BrokerRegistration, known: Any, image: Any) -> Any:
    changes, _ = _end_life(self, known, image)
    return changes, True


_end_life = BrokerRegistration._end_life


def _resigned_stay(self: Any, isr: tuple[int, ...], lost: Any) -> None:
    self._isr = tuple(broker_id for broker_id in isr if self._may_lead(broker_id) and broker_id not in lost)


def _nobody_has_resigned(self: Any, broker_id: int) -> bool:
    return False


def _anybody_for_resigned(self: Any, isr: tuple[int, ...], lost: Any) -> None:
    _set_isr(self, isr, lost)
    if self._isr and set(self._isr) <= set(self._resigned):
        able = tuple(replica for replica in self.replicas if self._may_lead(replica) and replica not in self._resigned)
        self._isr = able or self._isr


MUTATIONS: dict[str, Mutation] = {
    "cut-to-high-watermark": Mutation(
        what="a new follower cuts its log to its high watermark (before KIP-101)",
        known_seed=3,
        changes=((Partition, "apply", _cut_to_high_watermark),),
    ),
    "no-divergence": Mutation(
        what="a leader does not compare epochs with a follower's log (before KIP-101)",
        known_seed=1,
        changes=((Partition, "divergence", _never_diverges),),
    ),
    "minimal-isr": Mutation(
        what="the high watermark counts who is in the committed set and in the proposed one (KIP-497)",
        known_seed=1,
        changes=((Leadership, "maximal_isr", property(_minimal_isr)),),
    ),
    "committed-isr": Mutation(
        what="the high watermark does not wait for who is being added (KIP-497)",
        known_seed=2,
        changes=((Leadership, "maximal_isr", property(_committed_isr)),),
    ),
    "proposed-isr": Mutation(
        what="the high watermark does not wait for who is being removed (KIP-497)",
        known_seed=1,
        changes=((Leadership, "maximal_isr", property(_proposed_isr)),),
    ),
    "join-anywhere": Mutation(
        what="a follower joins the in-sync set wherever it stands",
        known_seed=1,
        changes=((Leadership, "maybe_expand", _join_anywhere),),
    ),
    "join-at-high-watermark": Mutation(
        what="a follower joins the in-sync set without what the leader's epoch began with",
        known_seed=147,
        changes=((Leadership, "maybe_expand", _join_at_high_watermark),),
    ),
    "fenced-members": Mutation(
        what="nobody refuses fenced brokers and old registrations in in-sync sets (KIP-841, KIP-903)",
        known_seed=95,
        changes=(
            (Leadership, "_is_eligible", _anybody_is_eligible),
            (alter_partition, "_why_ineligible", _nobody_is_ineligible),
        ),
    ),
    "no-strict-min-isr": Mutation(
        what="the high watermark moves with fewer than min.insync.replicas (KIP-966)",
        known_seed=3,
        changes=((Partition, "maybe_advance_high_watermark", _no_strict_min_isr),),
    ),
    "unclean-stop-ignored": Mutation(
        what="a broker that stopped uncleanly stays in sync and eligible (KIP-966)",
        known_seed=6,
        changes=(
            (partition_change._Target, "set_isr", _keeps_last_in_sync),
            (partition_change._Target, "set_elr", _elr_forgets_nothing),
        ),
    ),
    "eligible-for-ever": Mutation(
        what="replicas stay eligible although enough others are in sync (KIP-966)",
        known_seed=1,
        changes=((partition_change._Target, "set_elr", _elr_for_ever),),
    ),
    "early-offsets": Mutation(
        what="a new leader tells consumers its high watermark before it reached the start of its epoch",
        known_seed=5,
        changes=((Partition, "check_high_watermark", _serves_offsets_at_once),),
    ),
    "follower-reads-too-early": Mutation(
        what="a follower serves consumers before its leader has found that their logs agree (KIP-392)",
        known_seed=110,
        changes=((Partition, "check_reader", _any_reader),),
    ),
    "leaders-end-only": Mutation(
        what="a leader says where an epoch ends in its log, not which epoch that is (before KIP-279)",
        known_seed=132,
        changes=((Partition, "divergence", _end_without_epoch),),
    ),
    "no-epoch-in-fetch": Mutation(
        what="a leader counts followers of another epoch, and serves consumers who know a newer one (before KIP-320)",
        known_seed=208,
        changes=((Partition, "check_leader", _any_epoch),),
    ),
    "answers-of-old-streams": Mutation(
        what="a follower believes answers of streams that it gave up",
        changes=((FollowerStream, "on_message", _any_message),),
    ),
    "answers-of-old-positions": Mutation(
        what="a follower believes answers to a position that it named under an older epoch",
        known_seed=116,
        changes=((FollowerSession, "on_answer", _unmatched_answers),),
    ),
    "any-refusal-ends": Mutation(
        what="whatever the controller refuses a change for, or if it says nothing, the change is over",
        changes=((Partition, "on_isr_refused", _any_refusal_ends),),
    ),
    "unmatched-refusals": Mutation(
        what="a refusal ends whichever change is pending",
        changes=((Partition, "on_isr_refused", _refusal_of_any_change),),
    ),
    "any-metadata-ends": Mutation(
        what="any metadata end a pending change of the in-sync set",
        changes=((Leadership, "commit", _any_image_ends),),
    ),
    "newest-broker-epoch": Mutation(
        what="a leader vouches for the present life of a follower by what an earlier one fetched (KIP-903)",
        changes=(
            (Leadership, "_is_eligible", _eligible_in_any_life),
            (Leadership, "_broker_epoch_of", _newest_epoch),
        ),
    ),
    "any-broker-epoch": Mutation(
        what="the controller takes followers into the in-sync set whatever life they fetched in (before KIP-903)",
        changes=((alter_partition, "_why_ineligible", _any_life),),
    ),
    "leavers-join": Mutation(
        what="the controller takes fenced and stopping brokers into the in-sync set (before KIP-841)",
        known_seed=3,
        changes=(
            (alter_partition, "_why_ineligible", _nobody_is_ineligible),
            (Leadership, "_is_eligible", _anybody_is_eligible),
            (partition_change._Target, "set_isr", _isr_as_asked),
        ),
    ),
    "producers-not-cut": Mutation(
        what="truncation leaves what is remembered of producers as it is",
        known_seed=1,
        changes=((ProducerStates, "truncate_to", _not_cut),),
    ),
    "producers-cut-short": Mutation(
        what="truncation forgets runs, and does not read again what was there before them",
        known_seed=1,
        changes=((ProducerStates, "truncate_to", _cut_short),),
    ),
    "any-sequence": Mutation(
        what="a leader appends whatever a producer sends",
        known_seed=0,
        changes=((ProducerStates, "check", _any_sequence),),
    ),
    "same-epoch": Mutation(
        what="a new leader gets the epoch of the one before",
        known_seed=1,
        changes=(
            (replay_module, "changed_partition", _same_epoch),
            (alter_partition, "changed_partition", _same_epoch),
        ),
    ),
    "unclean-election": Mutation(
        what="a replica that may lack records is elected though the topic forbids it",
        known_seed=1,
        changes=((Electorate, "recovery_strategy", _unclean_if_needed),),
    ),
    "last-leader-leads": Mutation(
        what="if nobody has everything for certain, the last leader leads again, whatever it has left (Kafka)",
        known_seed=207,
        changes=((unclean_recovery, "most_complete", _last_leader),),
    ),
    "first-to-report": Mutation(
        what="unclean recovery does not wait for all replicas that had everything (KIP-966)",
        known_seed=1,
        changes=((unclean_recovery, "recovered_leader", _first_to_report),),
    ),
    "reports-of-any-life": Mutation(
        what="unclean recovery goes by what a replica reported before it crashed again",
        known_seed=22,
        changes=((ReplicaLogs, "current", _of_any_life),),
    ),
    "only-the-last-leader-is-known": Mutation(
        what="of the replicas that had everything only the last leader is remembered (Kafka)",
        known_seed=474,
        changes=((partition_change._Target, "_last_known", _forgets_the_lost),),
    ),
    "moved-at-once": Mutation(
        what="a reassignment drops the old replicas before the new ones are in sync",
        known_seed=1,
        changes=((partition_change._Target, "complete_reassignment", _complete_at_once),),
    ),
    "leaves-under-same-epoch": Mutation(
        what="a replica that is taken away does not begin a leader epoch",
        changes=((partition_change._Target, "record", _leaves_under_same_epoch),),
    ),
    "resigned-stay": Mutation(
        what="a replica that has resigned goes on leading, and being waited for",
        known_seed=0,
        changes=(
            (partition_change._Target, "set_isr", _resigned_stay),
            (partition_change._Target, "_has_resigned", _nobody_has_resigned),
        ),
    ),
    "resigned-replaced-by-anybody": Mutation(
        what="a replica that is out of sync takes over from a leader that has resigned",
        known_seed=2,
        changes=((partition_change._Target, "set_isr", _anybody_for_resigned),),
    ),
    "half-a-sweep": Mutation(
        what="what a decision leaves for later turns is not done",
        known_seed=28,
        changes=((leader_election, "_begin", _forgets_the_rest),),
    ),
    "registers-too-early": Mutation(
        what="a broker begins a life before it has left all in-sync sets of the one before",
        known_seed=6,
        changes=((BrokerRegistration, "_end_life", _registers_at_once),),
    ),
}

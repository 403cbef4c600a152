"""Known mistakes of retention that waits for groups, planted to prove that the simulation would see them. Only tests
ever do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from klamm.model import TopicPartition
from klamm_broker.log.cleaning import hold_groups, retention_hold
from klamm_broker.log.cleaning.hold_groups import ShardAnswer
from klamm_broker.log.cleaning.retention_hold import NO_GROUP, HoldDecision, LowOffset
from klamm_broker.log.partition.log_retention import LogRetention
from klamm_broker.maintenance import held_retention
from klamm_broker.maintenance.held_retention import HeldRetention
from klamm_coordinator.group_shard.releases import Releases
from klamm_coordinator.groups.group_context import GroupContext
from klamm_coordinator.offsets.lowest_offsets import LowestOffsets
from klamm_coordinator.offsets.released_holds import ReleasedHolds
from klamm_coordinator.records.schemas import OffsetCommitValue
from tests.sim.holdsim.servers import Broker
from tests.sim.holdsim.shards import OwnedShard
from tests.sim.kit.mutation import Mutation

_lowest_of = hold_groups.lowest_of
_apply = HeldRetention._apply
_add = LowestOffsets.add
_lowest = Broker.lowest


def _missing_shard_has_no_groups(
    groups: Sequence[str], shard_count: int, answers: Iterable[ShardAnswer]
) -> LowOffset | None:
    return min((answer.lowest for answer in answers), default=NO_GROUP)


def _highest_of(groups: Sequence[str], shard_count: int, answers: list[ShardAnswer]) -> LowOffset | None:
    known = [answer.lowest for answer in answers if answer.lowest != NO_GROUP]
    return _lowest_of(groups, shard_count, answers) and max(known, default=NO_GROUP)


def _delete_as_if_not_held(self: LogRetention, *, now_ms: int, high_watermark: int) -> Any:
    count = self._expired_count(self._summaries(now_ms), now_ms, high_watermark)
    return self._drop(count, now_ms) if count else None


def _delete_as_leader_or_follower(self: LogRetention, *, now_ms: int, high_watermark: int) -> Any:
    """Deletes the segments that the last answer allowed, even if another broker leads now."""
    return self.apply_held(now_ms=now_ms, high_watermark=high_watermark, low_offset=self._low_offset).deletion


def _wait_without_bounds(self: HeldRetention, partition: Any, lowest: LowOffset | None) -> HoldDecision:
    if lowest is None:
        return HoldDecision(0, 0, 0, 0, None)
    return _apply(self, partition, lowest)


def _only_groups_with_offsets(
    self: LowestOffsets,
    group_id: str,
    committed: Mapping[TopicPartition, OffsetCommitValue],
    released: Mapping[str, bytes],
) -> None:
    if committed:
        _add(self, group_id, committed, released)


def _answer_without_confirmation(self: OwnedShard, done: Callable[[bool], None]) -> None:
    done(self.is_loaded)


def _forget_released_holds(self: Releases, turn: GroupContext) -> None:
    self._state.released = ReleasedHolds()


def _released_though_it_exists(self: Releases, group_id: str) -> Mapping[str, bytes]:
    return self._state.released.of_group(group_id)


async def _remember_answers(
    self: Any, holds: Mapping[TopicPartition, tuple[str, ...]]
) -> Mapping[TopicPartition, LowOffset | None]:
    """Uses the last answer again if the coordinators cannot be asked now."""
    found = await _lowest(self, holds)
    self.remembered = {
        partition: getattr(self, "remembered", {}).get(partition) if lowest is None else lowest
        for partition, lowest in found.items()
    }
    return self.remembered


MUTATIONS = {
    "missing-shard-has-no-groups": Mutation(
        what="A shard that does not answer counts as a shard without groups.",
        known_seed=1,
        changes=((hold_groups, "lowest_of", _missing_shard_has_no_groups),),
    ),
    "fastest-group": Mutation(
        what="The broker waits for the fastest group, not for the slowest one.",
        known_seed=5,
        changes=((hold_groups, "lowest_of", _highest_of),),
    ),
    "owner-not-confirmed": Mutation(
        what="A coordinator answers for a shard that another coordinator may own.",
        known_seed=27,
        changes=((OwnedShard, "confirm", _answer_without_confirmation),),
    ),
    "answer-for-another-hold": Mutation(
        what="The broker uses an answer after the groups of the hold have changed.",
        known_seed=5,
        changes=((held_retention._Waiting, "is_current", property(lambda self: self.partition.is_leader)),),
    ),
    "answer-after-leader-change": Mutation(
        what="The broker uses an answer after another broker has become the leader.",
        known_seed=1,
        changes=(
            (
                held_retention._Waiting,
                "is_current",
                property(lambda self: self.partition.log.config.retention_hold_groups == self.groups),
            ),
        ),
    ),
    "follower-deletes": Mutation(
        what="A follower deletes by its own retention.",
        known_seed=1,
        changes=((LogRetention, "apply", _delete_as_if_not_held),),
    ),
    "stale-answer": Mutation(
        what="A replica deletes by the answer to an earlier question.",
        known_seed=1,
        changes=((LogRetention, "apply", _delete_as_leader_or_follower),),
    ),
    "answers-remembered": Mutation(
        what="The broker uses the last answer while the coordinators cannot be asked.",
        known_seed=14,
        changes=((Broker, "lowest", _remember_answers),),
    ),
    "bounds-ignored": Mutation(
        what="A hold has no bounds.",
        known_seed=0,
        changes=((retention_hold, "_bound_count", lambda segments, config, now_ms: 0),),
    ),
    "bounds-wait-for-coordinators": Mutation(
        what="The broker applies the bounds only if the coordinators answer.",
        known_seed=0,
        changes=((HeldRetention, "_apply", _wait_without_bounds),),
    ),
    "group-that-has-not-begun": Mutation(
        what="A named group without an offset holds nothing.",
        known_seed=14,
        changes=((LowestOffsets, "add", _only_groups_with_offsets),),
    ),
    "deleted-group-holds": Mutation(
        what="A named group that was deleted still holds its records.",
        known_seed=9,
        changes=((Releases, "records_of_deletion", lambda self, group_id: []),),
    ),
    "deletion-forgotten": Mutation(
        what="The next owner of a shard does not know which groups were deleted.",
        known_seed=7,
        changes=((Releases, "start", _forget_released_holds),),
    ),
    "begun-group-released": Mutation(
        what="A group that has begun again is released as before, when its offsets expire.",
        known_seed=44,
        changes=((Releases, "_has_begun", lambda self, group_id: False),),
    ),
    "existing-group-released": Mutation(
        what="A group that has begun again is released until the record of its deletion is deleted.",
        known_seed=1624,
        changes=((Releases, "of_group", _released_though_it_exists),),
    ),
}

"""Known mistakes of the new group protocol, planted to prove that the simulation would see them. Only tests ever do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from klamm.errors import ErrorCode
from klamm_coordinator.group_shard import rules
from klamm_coordinator.groups.group_context import GroupContext
from klamm_coordinator.kip848 import reconcile
from klamm_coordinator.kip848.group import ConsumerGroup
from klamm_coordinator.kip848.groups import ConsumerGroups
from klamm_coordinator.kip848.subscribe import refresh_topics
from klamm_coordinator.kip848.target import update_target
from klamm_coordinator.records import schemas
from klamm_coordinator.records.consumer_group_schemas import NO_PARTITIONS, Current, MemberState, Partitions
from tests.sim.kit.mutation import Mutation

_moved = reconcile._moved
_write = ConsumerGroups._write
_encode_value = schemas.encode_value
_take_heartbeat = ConsumerGroups._take_heartbeat


def _step_without_looking(
    group: ConsumerGroup, current: Current, target: Partitions, epoch: int, owned: Partitions | None
) -> Current:
    revoked = current.assigned - target
    if revoked and not reconcile._has_given_up(revoked, owned):
        kept = current.assigned & target
        return _moved(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    return _moved(current, group.assignment_epoch, MemberState.STABLE, target, NO_PARTITIONS)


def _given_up_unless_named(partitions: Partitions, owned: Partitions | None) -> bool:
    return owned is None or not owned & partitions


def _any_epoch(self: ConsumerGroup, member_id: str, member_epoch: int, partitions: Any) -> ErrorCode:
    return ErrorCode.NONE


def _answer_and_write(self: ConsumerGroups, group_id: str, records: Any, replies: Any, context: GroupContext) -> None:
    context.effects.replies.extend(replies)
    _write(self, group_id, records, (), context)


def _encode_without_revocations(value: Any) -> bytes | None:
    if isinstance(value, Current):
        value = replace(value, pending_revocation=NO_PARTITIONS)
    return _encode_value(value)


def _believe_who_joins(self: ConsumerGroups, request: Any, batch: Any, context: GroupContext) -> None:
    _take_heartbeat(self, request, batch, context)
    if batch.heartbeats and batch.heartbeats[-1][0] is request:
        batch.heartbeats[-1] = (request, batch.heartbeats[-1][1], True)


def _refresh_once(self: ConsumerGroups, change: Any, topics: Any, context: GroupContext) -> None:
    if change.group.epoch != change.group.assignment_epoch:
        refresh_topics(change, topics, wall_ms=context.now.wall_ms)
    update_target(change, "uniform")


def _reply_all_the_same(reply: Any, error: ErrorCode) -> Any:
    return reply


def _start_without_sessions(self: ConsumerGroups, context: GroupContext) -> None:
    return None


MUTATIONS: dict[str, Mutation] = {
    "early-grant": Mutation(
        what="a member gets what it is to have before others have given it up",
        known_seed=0,
        changes=((reconcile, "_step", _step_without_looking),),
    ),
    "silence-is-consent": Mutation(
        what="a heartbeat that says nothing of partitions counts as having given them up",
        known_seed=2,
        changes=((reconcile, "_has_given_up", _given_up_unless_named),),
    ),
    "any-epoch": Mutation(
        what="commits are taken whatever their member's epoch",
        known_seed=5,
        changes=((ConsumerGroup, "commit_error", _any_epoch),),
    ),
    "early-answer": Mutation(
        what="members are answered before the change is stored",
        known_seed=7,
        changes=((ConsumerGroups, "_write", _answer_and_write),),
    ),
    "forgotten-revocation": Mutation(
        what="the record of a member leaves out what it has to give up",
        known_seed=4,
        changes=((schemas, "encode_value", _encode_without_revocations),),
    ),
    "believed-join": Mutation(
        what="a member at epoch 0 is believed that it has nothing, also if the request is an old one",
        known_seed=2,
        changes=((ConsumerGroups, "_take_heartbeat", _believe_who_joins),),
    ),
    "old-topics": Mutation(
        what="a change of topics is not looked at before members change",
        known_seed=2,
        changes=((ConsumerGroups, "_refresh_target", _refresh_once),),
    ),
    "failure-told-as-success": Mutation(
        what="members of a write that failed are told that it did not",
        known_seed=6,
        changes=((rules, "refused", _reply_all_the_same),),
    ),
    "no-sessions": Mutation(
        what="a new owner does not wait for members that are not heard of any more",
        known_seed=2,
        changes=((ConsumerGroups, "start", _start_without_sessions),),
    ),
}

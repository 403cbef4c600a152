"""Requests about the offsets of groups: which members may commit, read and delete them, also in transactions
(KIP-447)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from klamm.errors import ErrorCode
from klamm.model import TOPIC_NAME_LENGTH_MAX, TopicPartition
from klamm_coordinator.classic import session
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.groups import ClassicGroups
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.groups.group_context import GroupContext
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.groups.sizes import GROUP_TOPIC_BYTES, OFFSET_BYTES, group_topic_bytes
from klamm_coordinator.kip848.group import ConsumerGroup
from klamm_coordinator.kip848.groups import ConsumerGroups
from klamm_coordinator.offsets.admission import TransactionAdmission
from klamm_coordinator.offsets.group_topics import GroupTopics
from klamm_coordinator.offsets.messages import (
    CommitOffset,
    CommitOffsets,
    CommitReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    EndTransaction,
    EndTransactionReply,
)
from klamm_coordinator.offsets.store import ShardOffsets
from klamm_coordinator.records.schemas import GroupRecord, OffsetCommitKey, OffsetCommitValue
from klamm_coordinator.runtime.accounts import Accounts
from klamm_coordinator.runtime.log_write import TxnProducer
from klamm_server.runtime.byte_shares import NOBODY
from klamm_server.runtime.fair_share import BEGIN, CONTINUE

LARGEST_BYTES: Final = OFFSET_BYTES + GROUP_TOPIC_BYTES + 2 * TOPIC_NAME_LENGTH_MAX
"""The most bytes of an offset and its topic, without the offset's metadata."""


class OffsetRules:
    """Answers requests about the offsets in one shard, for groups of either protocol."""

    def __init__(
        self,
        store: ShardOffsets,
        topics: GroupTopics,
        classic: ClassicGroups,
        consumers: ConsumerGroups,
        settings: GroupSettings,
        accounts: Accounts,
    ) -> None:
        self.transactions = TransactionAdmission()
        """The transactions that may write. Callers use `begin_verification` before they ask a transaction's
        coordinator."""
        self._store = store
        self._topics = topics
        self._classic = classic
        self._consumers = consumers
        self._settings = settings
        self._accounts = accounts

    # Reading

    def fetch_error(self, group_id: str, member_id: str, member_epoch: int) -> ErrorCode:
        """Returns NONE if offsets may be read in this member's name, otherwise the error. Without a member, returns
        NONE (KIP-848)."""
        return self._consumers.epoch_error(group_id, member_id, member_epoch) if member_id else ErrorCode.NONE

    def unstable(self, group_id: str, partitions: Sequence[TopicPartition] | None) -> list[TopicPartition]:
        """Returns the partitions whose offsets an open transaction may change (KIP-447). Checks `partitions`, or all if
        it is None."""
        return sorted(_unstable(self._store, group_id, partitions))

    # Changing

    def start(self) -> None:
        """Adds the transactions that are open after the shard was loaded."""
        self.transactions.load(self._store.pending.producer_ids())

    def commit(self, request: CommitOffsets, context: GroupContext) -> None:
        """Stores offsets, at once or with their transaction."""
        self._accounts.requester = request.user
        self._commit(request, context)
        self._accounts.requester = NOBODY

    def _commit(self, request: CommitOffsets, context: GroupContext) -> None:
        times_free = CONTINUE if self._exists(request.group_id) else BEGIN
        error = self._commit_error(request, context)
        if error is ErrorCode.NONE and request.producer is not None:
            error = self._transaction_error(request.producer, request.verification)
        if error is not ErrorCode.NONE:
            context.reply(request.reply_id, CommitReply(errors=(error,) * len(request.offsets)))
            self._classic.forget_if_unused(request.group_id)
            return
        records, errors = _commit_records(
            request,
            metadata_bytes_max=self._settings.offset_metadata_bytes_max,
            wall_ms=context.now.wall_ms,
        )
        if not self._admits(request.group_id, records, times_free, context):
            errors = tuple(error or ErrorCode.INVALID_COMMIT_OFFSET_SIZE for error in errors)
            records = ()
        reply = CommitReply(errors=errors)
        if records:
            if request.producer is not None:
                self.transactions.wrote(request.producer)
            context.append(records, replies=((request.reply_id, reply),), producer=request.producer)
        else:
            context.reply(request.reply_id, reply)
            self._classic.forget_if_unused(request.group_id)

    def end_transaction(self, request: EndTransaction, context: GroupContext) -> None:
        """Stores the marker that decides about a transaction's offsets."""
        self.transactions.end(request.producer, request.marker)
        replies = ((request.reply_id, EndTransactionReply()),)
        context.append_marker(request.producer, request.marker, replies=replies)

    def delete(self, request: DeleteOffsets, context: GroupContext) -> None:
        """Deletes single offsets of a group (KIP-496)."""
        consumer_group = self._consumers.get(request.group_id)
        group = consumer_group or self._classic.groups.get(request.group_id)
        if consumer_group is None:
            error = _delete_error(self._classic.groups.get(request.group_id))
        else:
            error = ErrorCode.GROUP_ID_NOT_FOUND if self._consumers.is_dying(request.group_id) else ErrorCode.NONE
        if error is not ErrorCode.NONE:
            context.reply(request.reply_id, DeleteOffsetsReply(error=error))
            return
        assert group is not None
        records, errors = _delete_records(self._store, group, request)
        reply = DeleteOffsetsReply(errors=errors)
        if records:
            context.append(records, replies=((request.reply_id, reply),))
        else:
            context.reply(request.reply_id, reply)

    def _admits(self, group_id: str, records: tuple[GroupRecord, ...], times_free: int, context: GroupContext) -> bool:
        """Returns True if there is memory for the offsets. Offsets that do not make the group larger always have
        room."""
        largest_bytes = len(records) * (LARGEST_BYTES + self._settings.offset_metadata_bytes_max)
        if self._accounts.admits(group_id, largest_bytes, times_free):
            return True
        added_bytes = sum(
            self._store.added_bytes(group_id, TopicPartition(key.topic, key.partition), value)
            for key, value in records
            if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue)
        )
        added_bytes += sum(
            group_topic_bytes(topic)
            for topic in {key.topic for key, _ in records if isinstance(key, OffsetCommitKey)}
            if not self._topics.has(group_id, topic)
        )
        is_admitted = self._accounts.admits(group_id, added_bytes, times_free)
        if not is_admitted:
            self._accounts.refuse("group", group_id, added_bytes, context)
        return is_admitted

    def _exists(self, group_id: str) -> bool:
        return group_id in self._classic.groups or self._consumers.get(group_id) is not None

    def _commit_error(self, request: CommitOffsets, context: GroupContext) -> ErrorCode:
        if self._consumers.get(request.group_id) is not None:
            return self._consumers.commit_error(
                request.group_id,
                request.member_id,
                request.generation_id,
                [offset.partition for offset in request.offsets],
                is_transactional=request.producer is not None,
            )
        group = self._classic.groups.get(request.group_id)
        if group is None and request.generation_id < 0:
            group = self._classic.create(request.group_id, context)
        if group is None:
            if request.generation_id < 0:
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            if request.producer is not None:
                return ErrorCode.GROUP_ID_NOT_FOUND
            # The group no longer exists, so the member has to join again. Every client does that after this code.
            return ErrorCode.ILLEGAL_GENERATION
        check = session.check_commit if request.producer is None else session.check_transactional_commit
        return check(
            group,
            generation_id=request.generation_id,
            member_id=request.member_id,
            instance_id=request.instance_id,
            context=context,
        )

    def _transaction_error(self, producer: TxnProducer, verification: int | None) -> ErrorCode:
        is_admitted = self.transactions.admits(producer, verification)
        if verification is not None:
            self.transactions.end_verification(verification)
        return ErrorCode.NONE if is_admitted else ErrorCode.TRANSACTION_ABORTABLE


def _commit_records(
    request: CommitOffsets, *, metadata_bytes_max: int, wall_ms: int
) -> tuple[tuple[GroupRecord, ...], tuple[ErrorCode, ...]]:
    """Returns the records of a commit that is allowed, and the error code of each offset."""
    errors = tuple(_offset_error(offset, metadata_bytes_max) for offset in request.offsets)
    records = tuple(
        GroupRecord(
            OffsetCommitKey(request.group_id, offset.partition.topic, offset.partition.partition),
            OffsetCommitValue(offset.offset, offset.leader_epoch, offset.metadata, wall_ms),
        )
        for offset, error in zip(request.offsets, errors, strict=True)
        if error is ErrorCode.NONE
    )
    return records, errors


def _offset_error(offset: CommitOffset, metadata_bytes_max: int) -> ErrorCode:
    if offset.error is not ErrorCode.NONE:
        return offset.error
    # Each character has at least one byte, so a text with too many characters need not be encoded.
    metadata = offset.metadata
    if len(metadata) > metadata_bytes_max or len(metadata.encode()) > metadata_bytes_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _unstable(
    store: ShardOffsets, group_id: str, partitions: Sequence[TopicPartition] | None
) -> Iterable[TopicPartition]:
    """Returns the partitions whose offsets an open transaction may change. Checks `partitions`, or all if it is
    None."""
    found = store.unstable_partitions(group_id)
    return found if partitions is None else found.intersection(partitions)


def _delete_error(group: ClassicGroup | None) -> ErrorCode:
    """Returns NONE if offsets of this group may be deleted, otherwise the error. A group with members must be of the
    type "consumer", because only then its subscriptions are known."""
    if group is None or group.state is ClassicGroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not ClassicGroupState.EMPTY and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _delete_records(
    store: ShardOffsets, group: ClassicGroup | ConsumerGroup, request: DeleteOffsets
) -> tuple[tuple[GroupRecord, ...], tuple[ErrorCode, ...]]:
    """Returns tombstones for the existing offsets, and the code of each partition. Topics in use are refused
    (KIP-496)."""
    errors = tuple(
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(partition.topic) else ErrorCode.NONE
        for partition in request.partitions
    )
    stored = store.of_group(group.group_id)
    doomed = [
        partition
        for partition, error in zip(request.partitions, errors, strict=True)
        if error is ErrorCode.NONE and (partition in stored or store.is_undecided(group.group_id, partition))
    ]
    return tombstones(group.group_id, doomed), errors


def tombstones(group_id: str, partitions: list[TopicPartition]) -> tuple[GroupRecord, ...]:
    """Returns the records that delete these offsets."""
    return tuple(
        GroupRecord(OffsetCommitKey(group_id, partition.topic, partition.partition), None) for partition in partitions
    )

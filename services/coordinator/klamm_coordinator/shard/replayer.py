"""Replays batches of the log into a shard's state: how a shard is loaded.

Nearly all of a large shard are offsets, and most of their keys differ from one another in the partition alone; what
comes before it is decoded once for each group and topic.
"""

from __future__ import annotations

import struct

from klamm.model import NO_PRODUCER_ID, TopicPartition
from klamm.records import BatchHeader, Buffer, ControlRecordType, decode_batch, decode_control_record
from klamm_coordinator.records.schemas import (
    GroupMetadataKey,
    OffsetCommitKey,
    Record,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from klamm_coordinator.shard.state import ShardState

_PARTITION = struct.Struct(">i")
_OFFSET_KEY_VERSIONS = (b"\x00\x01", b"\x00\x00")


class Replayer:
    """For one load; not used after it."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._prefixes: dict[bytes, tuple[str, str]] = {}
        """Bytes of an offset's key before the partition -> group id and topic."""
        self.skipped_count = 0
        """Records of kinds that are not known here."""

    def replay_batch(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        """Applies the batch at `position`. Raises SchemaError, or a CorruptBatchError."""
        if header.is_control:
            self._replay_marker(buffer, position, header.producer_id)
            return
        # The producer of a batch outside of transactions is the shard's owner.
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        replay_offset = self._state.offsets.replay
        replay_pending = self._state.offsets.pending.add
        unpack_partition = _PARTITION.unpack_from
        for _, _, key, value, _ in decode_batch(buffer, position):
            if key is None:
                self.skipped_count += 1
            elif key[:2] in _OFFSET_KEY_VERSIONS:
                group_id, topic = self._prefixes.get(key[:-4]) or self._decode_prefix(key)
                (partition,) = unpack_partition(key, len(key) - 4)
                offset = None if value is None else decode_offset_value(value)
                if producer_id >= 0 and offset is not None:
                    replay_pending(producer_id, group_id, TopicPartition(topic, partition), offset)
                else:
                    replay_offset(group_id, TopicPartition(topic, partition), offset)
            else:
                self._replay_other(key, value)

    def _replay_marker(self, buffer: Buffer, position: int, producer_id: int) -> None:
        for _, _, key, value, _ in decode_batch(buffer, position):
            marker = decode_control_record(key, value)
            if marker.type is not ControlRecordType.UNKNOWN:
                self._state.end_transaction(producer_id, committed=marker.type is ControlRecordType.COMMIT)

    def _decode_prefix(self, key: bytes) -> tuple[str, str]:
        decoded = decode_key(key)
        assert isinstance(decoded, OffsetCommitKey), decoded
        names = self._prefixes[key[:-4]] = (decoded.group_id, decoded.topic)
        return names

    def _replay_other(self, key: bytes, value: bytes | None) -> None:
        decoded = decode_key(key)
        if isinstance(decoded, GroupMetadataKey):
            group = None if value is None else decode_group_value(value)
            self._state.replay(Record(decoded, group))
        else:
            self.skipped_count += 1

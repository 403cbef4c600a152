"""Loads a shard: replays batches of the log into the shard's state.

Nearly all records of a large shard are offsets, and most of their keys differ only in the partition. So the bytes
before the partition are decoded once for each group and topic. The value of an offset outside of transactions is
checked, but kept encoded.
"""

from __future__ import annotations

from klamm.model import NO_PRODUCER_ID, TopicPartition
from klamm.records import BatchHeader, Buffer, ControlRecordType, decode_contents, decode_control_record
from klamm_coordinator.group_shard.state import GroupShardState
from klamm_coordinator.records.schemas import (
    GroupRecord,
    OffsetCommitKey,
    check_offset_value,
    decode_key,
    decode_offset_value,
    decode_value,
)

_OFFSET_KEY_VERSIONS = (b"\x00\x01", b"\x00\x00")


class _Partitions(dict[bytes, TopicPartition]):
    """The partitions of one topic, by the last four bytes of an offset's key. All groups share these objects."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic

    def __missing__(self, encoded: bytes) -> TopicPartition:
        partition = self[encoded] = TopicPartition(self._topic, int.from_bytes(encoded, "big", signed=True))
        return partition


class GroupReplayer:
    """Replays the records of one load of a shard of groups. Every load uses a new replayer."""

    def __init__(self, state: GroupShardState) -> None:
        self._state = state
        self._keys: dict[bytes, tuple[str, _Partitions]] = {}
        """The group id and the partitions, by the bytes of an offset's key before the partition."""
        self._topics: dict[str, _Partitions] = {}
        self.skipped_count = 0
        """The number of records that were skipped, because they have no key or are of an unknown kind."""

    def replay_batch(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        """Applies the batch at `position`. Raises SchemaError, or a CorruptBatchError."""
        if header.is_control:
            self._replay_marker(buffer, position, header)
            return
        # The producer of a batch outside of transactions is the shard's owner.
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        replay_offset = self._state.offsets.replay_encoded
        replay_pending = self._state.offsets.pending.add
        keys_of = self._keys.get
        for key, value in decode_contents(buffer, position, header):
            if key is None:
                self.skipped_count += 1
            elif key[:2] in _OFFSET_KEY_VERSIONS:
                group_id, partitions = keys_of(key[:-4]) or self._decode_prefix(key)
                partition = partitions[key[-4:]]
                if value is None:
                    replay_offset(group_id, partition, None)
                elif producer_id >= 0:
                    replay_pending(producer_id, group_id, partition, decode_offset_value(value))
                else:
                    check_offset_value(value)
                    replay_offset(group_id, partition, value)
            else:
                self._replay_other(key, value)

    def _replay_marker(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        for key, value in decode_contents(buffer, position, header):
            marker = decode_control_record(key, value)
            if marker.type is not ControlRecordType.UNKNOWN:
                self._state.end_transaction(header.producer_id, committed=marker.type is ControlRecordType.COMMIT)

    def _decode_prefix(self, key: bytes) -> tuple[str, _Partitions]:
        decoded = decode_key(key)
        assert isinstance(decoded, OffsetCommitKey), decoded
        partitions = self._topics.setdefault(decoded.topic, _Partitions(decoded.topic))
        found = self._keys[key[:-4]] = (decoded.group_id, partitions)
        return found

    def _replay_other(self, key: bytes, value: bytes | None) -> None:
        decoded = decode_key(key)
        assert not isinstance(decoded, OffsetCommitKey), decoded
        if decoded is None:
            self.skipped_count += 1
        else:
            self._state.replay(GroupRecord(decoded, None if value is None else decode_value(decoded, value)))

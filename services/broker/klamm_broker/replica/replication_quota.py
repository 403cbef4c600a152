"""Limits how fast throttled replicas are copied, on the leader's side and on the follower's (KIP-73).

Kafka's `ReplicationQuotaManager`. A rate is measured over the last eleven windows of one second, including the current
one. A partition is *throttled* if its topic's `leader.replication.throttled.replicas` (or `follower...`) names it
together with this broker, or is `*`. Only bytes of throttled partitions count. While the rate is above
`leader.replication.throttled.rate` (or `follower...`), throttled replicas that are out of sync are not copied. Replicas
in sync are still copied, so that they stay in the in-sync set. Pure; times are monotonic milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from klamm.model import TopicPartition
from klamm.setting import LONG_MAX, split_list
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_TOPIC
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.metadata.image import MetadataImage

WINDOW_MS = 1_000
WINDOW_COUNT = 11
PORTION_MS = 100
"""A throttled side copies portions of at least the bytes that the quota allows in this time, not single batches."""
NO_LIMIT = LONG_MAX
EVERY_REPLICA = "*"


class _Window:
    __slots__ = ("size_bytes", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.size_bytes = 0


class WindowedRate:
    """A rate in bytes per second over the remembered windows, of at least one second. Kafka's `SimpleRate`."""

    def __init__(self) -> None:
        self._windows: deque[_Window] = deque()
        self._size_bytes = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        self._forget(now_ms)
        if not self._windows or now_ms - self._windows[-1].start_ms >= WINDOW_MS:
            self._windows.append(_Window(now_ms))
        self._windows[-1].size_bytes += size_bytes
        self._size_bytes += size_bytes

    def is_above(self, limit: int, now_ms: int) -> bool:
        """Returns True if the rate is above `limit` bytes per second."""
        self._forget(now_ms)
        return self._size_bytes * 1000 > limit * self._elapsed_ms(now_ms)

    def free_bytes(self, limit: int, now_ms: int) -> int:
        """Returns the bytes that would raise the rate to `limit`, negative if the rate is above it."""
        self._forget(now_ms)
        return limit * self._elapsed_ms(now_ms) // 1000 - self._size_bytes

    def below_at_ms(self, limit: int, now_ms: int) -> int:
        """Returns the time when the rate is no longer above `limit`, if no bytes are added. Returns `now_ms` if it is
        not above now."""
        self._forget(now_ms)
        size_bytes, at_ms = self._size_bytes, now_ms
        for oldest in self._windows:
            if size_bytes * 1000 <= limit * max(WINDOW_MS, at_ms - oldest.start_ms):
                return at_ms
            forgotten_ms = oldest.start_ms + WINDOW_MS * WINDOW_COUNT
            below_ms = oldest.start_ms - (-size_bytes * 1000 // limit) if limit else forgotten_ms
            if below_ms < forgotten_ms:
                return below_ms
            size_bytes -= oldest.size_bytes
            at_ms = max(at_ms, forgotten_ms)
        return at_ms

    def _elapsed_ms(self, now_ms: int) -> int:
        return max(WINDOW_MS, now_ms - self._windows[0].start_ms) if self._windows else WINDOW_MS

    def _forget(self, now_ms: int) -> None:
        while self._windows and now_ms - self._windows[0].start_ms >= WINDOW_MS * WINDOW_COUNT:
            self._size_bytes -= self._windows.popleft().size_bytes


class ReplicationQuota:
    """The quota of one side, and the throttled partitions that it limits."""

    def __init__(self) -> None:
        self.limit = NO_LIMIT
        """The limit in bytes per second."""
        self.copied_bytes = 0
        """The bytes of throttled partitions that were copied since the start."""
        self._rate = WindowedRate()
        self._throttled: Mapping[str, frozenset[int] | None] = {}

    def configure(self, limit: int, throttled: Mapping[str, frozenset[int] | None]) -> None:
        """Sets the limit and the throttled partitions. `throttled` has the partition numbers by topic, None for all
        partitions."""
        self.limit, self._throttled = limit, throttled

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Returns True if the quota counts the partition's bytes."""
        if topic_partition.topic not in self._throttled:
            return False
        numbers = self._throttled[topic_partition.topic]
        return numbers is None or topic_partition.partition in numbers

    def record(self, topic_partition: TopicPartition, size_bytes: int, now_ms: int) -> None:
        """Counts `size_bytes` copied of the partition, if it is throttled."""
        if size_bytes and self.is_throttled(topic_partition):
            self.add(size_bytes, now_ms)

    def add(self, size_bytes: int, now_ms: int) -> None:
        """Counts `size_bytes` copied of throttled partitions."""
        self.copied_bytes += size_bytes
        self._rate.record(size_bytes, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        return self.limit != NO_LIMIT and self._rate.is_above(self.limit, now_ms)

    def free_at_ms(self, now_ms: int) -> int:
        """Returns the time when the limit is no longer exceeded, or `now_ms` if it is not exceeded."""
        return now_ms if self.limit == NO_LIMIT else self._rate.below_at_ms(self.limit, now_ms)

    def free_bytes(self, now_ms: int) -> int:
        """Returns how many bytes may be copied at once without exceeding the limit: the rest of the quota, but at least
        the bytes of `PORTION_MS`."""
        if self.limit == NO_LIMIT:
            return NO_LIMIT
        return max(1, self.limit * PORTION_MS // 1000, self._rate.free_bytes(self.limit, now_ms))


class ReplicationQuotas:
    """The replication quotas of one broker: as leader, as follower, and for moves between its log directories
    (KIP-113)."""

    def __init__(self) -> None:
        self.leader = ReplicationQuota()
        self.follower = ReplicationQuota()
        self.log_dirs = ReplicationQuota()
        self._configs: object = None

    def apply(self, image: MetadataImage, config: BrokerConfig) -> bool:
        """Applies the quotas of the configs. Returns True if the metadata's configs have changed since the last
        call."""
        if image.configs is self._configs:
            return False
        self._configs = image.configs
        self.log_dirs.configure(config.replica_alter_log_dirs_io_max_bytes_per_second, {})
        for side, quota, rate in (
            ("leader", self.leader, config.leader_replication_throttled_rate),
            ("follower", self.follower, config.follower_replication_throttled_rate),
        ):
            name = f"{side}.replication.throttled.replicas"
            quota.configure(
                rate,
                {
                    topic: _partitions(split_list(configs[name]), config.node_id)
                    for (kind, topic), configs in image.configs.items()
                    if kind == CONFIG_RESOURCE_TYPE_TOPIC and configs.get(name)
                },
            )
        return True


def _partitions(replicas: tuple[str, ...], broker_id: int) -> frozenset[int] | None:
    """Returns the partition numbers of the pairs `partition:broker` that name this broker, or None for all
    partitions."""
    if EVERY_REPLICA in replicas:
        return None
    pairs = (replica.split(":") for replica in replicas)
    return frozenset(int(number) for number, broker in pairs if int(broker) == broker_id)

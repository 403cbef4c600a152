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
"""A throttled side is busy in portions of what it may copy in that time, not batch by batch."""
NO_LIMIT = LONG_MAX
EVERY_REPLICA = "*"


class _Window:
    __slots__ = ("size_bytes", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.size_bytes = 0


class WindowedRate:
    """Bytes over the time of the windows that are remembered, which is a second at least. Kafka's `SimpleRate`."""

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
        """Whether it is more than `limit` bytes per second."""
        self._forget(now_ms)
        return self._size_bytes * 1000 > limit * self._elapsed_ms(now_ms)

    def room_bytes(self, limit: int, now_ms: int) -> int:
        """How much more makes the rate `limit`; negative when it is above."""
        self._forget(now_ms)
        return limit * self._elapsed_ms(now_ms) // 1000 - self._size_bytes

    def below_at_ms(self, limit: int, now_ms: int) -> int:
        """When the rate is not above `limit` any more if nothing is added: `now_ms` if it is not now."""
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
    """One side's limit, and the partitions that it is for."""

    def __init__(self) -> None:
        self.limit = NO_LIMIT
        """The limit in bytes per second."""
        self.copied_bytes = 0
        """How many bytes of throttled partitions were copied since the start."""
        self._rate = WindowedRate()
        self._throttled: Mapping[str, frozenset[int] | None] = {}

    def configure(self, limit: int, throttled: Mapping[str, frozenset[int] | None]) -> None:
        """`throttled` has the partition numbers by topic, None for all of them."""
        self.limit, self._throttled = limit, throttled

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Whether what is copied of it counts."""
        if topic_partition.topic not in self._throttled:
            return False
        numbers = self._throttled[topic_partition.topic]
        return numbers is None or topic_partition.partition in numbers

    def record(self, topic_partition: TopicPartition, size_bytes: int, now_ms: int) -> None:
        """Counts `size_bytes` copied of the partition."""
        if size_bytes and self.is_throttled(topic_partition):
            self.add(size_bytes, now_ms)

    def add(self, size_bytes: int, now_ms: int) -> None:
        """Counts `size_bytes` copied of throttled partitions."""
        self.copied_bytes += size_bytes
        self._rate.record(size_bytes, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        return self.limit != NO_LIMIT and self._rate.is_above(self.limit, now_ms)

    def free_at_ms(self, now_ms: int) -> int:
        """When the limit is not exceeded any more; `now_ms` when it is not."""
        return now_ms if self.limit == NO_LIMIT else self._rate.below_at_ms(self.limit, now_ms)

    def room_bytes(self, now_ms: int) -> int:
        """Returns how many bytes may be copied at once without exceeding the limit: the rest of the quota, but at least
        the bytes of `PORTION_MS`."""
        if self.limit == NO_LIMIT:
            return NO_LIMIT
        return max(1, self.limit * PORTION_MS // 1000, self._rate.room_bytes(self.limit, now_ms))


class ReplicationQuotas:
    """The quotas of one broker, as the metadata say: of both sides, and for moves between its log dirs (KIP-113)."""

    def __init__(self) -> None:
        self.leader = ReplicationQuota()
        self.follower = ReplicationQuota()
        self.log_dirs = ReplicationQuota()
        self._configs: object = None

    def apply(self, image: MetadataImage, config: BrokerConfig) -> bool:
        """Takes over what the configs say, with the rates that are in force; whether they are others than before."""
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
    """The numbers of `partition:broker` that are of this broker; None: all."""
    if EVERY_REPLICA in replicas:
        return None
    pairs = (replica.split(":") for replica in replicas)
    return frozenset(int(number) for number, broker in pairs if int(broker) == broker_id)

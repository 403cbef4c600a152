"""The broker's configuration: the part of `klamm_server.broker_configs` that its process acts on.

Dynamic configs (topic defaults such as `log.retention.ms`, `message.max.bytes`) are not fields: what the file
says is the weakest layer under what the controller's metadata say, looked up again with every change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from klamm.errors import ConfigError
from klamm_server.broker_configs import BROKER_CONFIGS
from klamm_server.config import setting
from klamm_server.config_def import ConfigDef
from klamm_server.member_config import MemberConfig
from klamm_server.topic_configs import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(MemberConfig):
    """See `klamm_server.config`: `load(BrokerConfig, properties)` makes one."""

    broker_rack: str | None = setting(BROKER_CONFIGS["broker.rack"])
    replica_selector_class: str | None = setting(BROKER_CONFIGS["replica.selector.class"])
    auto_create_topics_enable: bool = setting(BROKER_CONFIGS["auto.create.topics.enable"])
    offsets_topic_num_partitions: int = setting(BROKER_CONFIGS["offsets.topic.num.partitions"])
    log_dir: tuple[str, ...] = setting(BROKER_CONFIGS["log.dir"])
    log_dirs: tuple[str, ...] | None = setting(BROKER_CONFIGS["log.dirs"])
    log_dirs_lost: tuple[str, ...] = setting(BROKER_CONFIGS["log.dirs.lost"])
    log_open_segments_max: int = setting(BROKER_CONFIGS["log.open.segments.max"])
    num_recovery_threads_per_data_dir: int = setting(BROKER_CONFIGS["num.recovery.threads.per.data.dir"])
    log_flush_scheduler_interval_ms: int = setting(BROKER_CONFIGS["log.flush.scheduler.interval.ms"])
    log_retention_check_interval_ms: int = setting(BROKER_CONFIGS["log.retention.check.interval.ms"])
    log_flush_offset_checkpoint_interval_ms: int = setting(BROKER_CONFIGS["log.flush.offset.checkpoint.interval.ms"])
    add_partitions_to_txn_retry_backoff_ms: int = setting(BROKER_CONFIGS["add.partitions.to.txn.retry.backoff.ms"])
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        BROKER_CONFIGS["add.partitions.to.txn.retry.backoff.max.ms"]
    )
    request_timeout_ms: int = setting(BROKER_CONFIGS["request.timeout.ms"])
    producer_id_expiration_ms: int = setting(BROKER_CONFIGS["producer.id.expiration.ms"])
    producer_ids_per_partition_max: int = setting(BROKER_CONFIGS["producer.ids.per.partition.max"])
    log_cleaner_enable: bool = setting(BROKER_CONFIGS["log.cleaner.enable"])
    log_cleaner_threads: int = setting(BROKER_CONFIGS["log.cleaner.threads"])
    log_cleaner_dedupe_buffer_size: int = setting(BROKER_CONFIGS["log.cleaner.dedupe.buffer.size"])
    log_cleaner_io_buffer_load_factor: float = setting(BROKER_CONFIGS["log.cleaner.io.buffer.load.factor"])
    log_cleaner_io_buffer_size: int = setting(BROKER_CONFIGS["log.cleaner.io.buffer.size"])
    log_cleaner_io_max_bytes_per_second: float = setting(BROKER_CONFIGS["log.cleaner.io.max.bytes.per.second"])
    log_cleaner_backoff_ms: int = setting(BROKER_CONFIGS["log.cleaner.backoff.ms"])
    log_scrub_bytes_per_second: int = setting(BROKER_CONFIGS["log.scrub.bytes.per.second"])
    log_scrub_interval_ms: int = setting(BROKER_CONFIGS["log.scrub.interval.ms"])
    num_replica_fetchers: int = setting(BROKER_CONFIGS["num.replica.fetchers"])
    replica_lag_time_max_ms: int = setting(BROKER_CONFIGS["replica.lag.time.max.ms"])
    replica_fetch_min_bytes: int = setting(BROKER_CONFIGS["replica.fetch.min.bytes"])
    replica_fetch_max_bytes: int = setting(BROKER_CONFIGS["replica.fetch.max.bytes"])
    replica_fetch_response_max_bytes: int = setting(BROKER_CONFIGS["replica.fetch.response.max.bytes"])
    replica_fetch_wait_max_ms: int = setting(BROKER_CONFIGS["replica.fetch.wait.max.ms"])
    replica_fetch_backoff_ms: int = setting(BROKER_CONFIGS["replica.fetch.backoff.ms"])
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        BROKER_CONFIGS["replica.high.watermark.checkpoint.interval.ms"]
    )
    fetch_max_bytes: int = setting(BROKER_CONFIGS["fetch.max.bytes"])
    queued_max_request_bytes: int = setting(BROKER_CONFIGS["queued.max.request.bytes"])
    max_connections: int = setting(BROKER_CONFIGS["max.connections"])
    max_incremental_fetch_session_cache_slots: int = setting(
        BROKER_CONFIGS["max.incremental.fetch.session.cache.slots"]
    )
    min_incremental_fetch_session_eviction_ms: int = setting(
        BROKER_CONFIGS["min.incremental.fetch.session.eviction.ms"]
    )
    socket_send_buffer_bytes: int = setting(BROKER_CONFIGS["socket.send.buffer.bytes"])
    connections_max_idle_ms: int = setting(BROKER_CONFIGS["connections.max.idle.ms"])
    max_parked_requests: int = setting(BROKER_CONFIGS["max.parked.requests"])

    def validate(self) -> None:
        # Not super(): a slotted dataclass is not the class that its body closes over.
        MemberConfig.validate(self)
        if not self.data_dirs:
            raise ConfigError("log.dirs: the list is empty, expected at least one directory")
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            raise ConfigError(
                f"replica.fetch.wait.max.ms={self.replica_fetch_wait_max_ms}: expected at most"
                f" replica.lag.time.max.ms={self.replica_lag_time_max_ms}, or followers of idle partitions seem to lag"
            )
        if self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                f"queued.max.request.bytes={self.queued_max_request_bytes}: expected at least"
                f" socket.request.max.bytes={self.socket_request_max_bytes}, or the largest request never fits"
            )
        if self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads < MIB:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size={self.log_cleaner_dedupe_buffer_size}: expected at least {MIB} for"
                f" each of log.cleaner.threads={self.log_cleaner_threads}"
            )

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """`log.dirs`, or else `log.dir`; each once."""
        return tuple(dict.fromkeys(self.log_dir if self.log_dirs is None else self.log_dirs))

    ALSO_KNOWN: ClassVar[Mapping[str, ConfigDef]] = {}


_FIELDS = {field.metadata["config"].name for field in dataclasses.fields(BrokerConfig) if field.metadata}
BrokerConfig.ALSO_KNOWN = {name: known for name, known in BROKER_CONFIGS.items() if name not in _FIELDS}

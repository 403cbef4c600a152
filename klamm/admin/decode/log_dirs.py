"""Decodes the log directories that brokers describe."""

from __future__ import annotations

from klamm.admin.types.log_dirs import LogDirDescription, ReplicaDescription
from klamm.model import TopicPartition
from klamm.wire.v1 import broker_pb2


def log_dir(message: broker_pb2.DescribedLogDir) -> LogDirDescription:
    return LogDirDescription(
        path=message.path,
        online=not message.error_code,
        total_bytes=message.total_bytes,
        usable_bytes=message.usable_bytes,
        replicas=tuple(
            ReplicaDescription(
                tp=TopicPartition(replica.topic, replica.partition),
                size_bytes=replica.size_bytes,
                log_start_offset=replica.log_start_offset,
                log_end_offset=replica.log_end_offset,
                is_future=replica.is_future,
                offset_lag=replica.offset_lag,
                held_bytes=replica.held_bytes,
                held_for=replica.held_for,
                in_bytes=replica.in_bytes,
                out_bytes=replica.out_bytes,
            )
            for replica in message.replicas
        ),
    )

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
                tp=TopicPartition(each.topic, each.partition),
                size_bytes=each.size_bytes,
                log_start_offset=each.log_start_offset,
                log_end_offset=each.log_end_offset,
                is_future=each.is_future,
                offset_lag=each.offset_lag,
                held_bytes=each.held_bytes,
                held_for=each.held_for,
                in_bytes=each.in_bytes,
                out_bytes=each.out_bytes,
            )
            for each in message.replicas
        ),
    )

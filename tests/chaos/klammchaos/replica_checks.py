"""Checks that all controllers have the same metadata, in their answers and on their disks."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

from grpc import aio

from klamm.wire.v1.controller_pb2 import DescribeClusterRequest, WatchMetadataRequest
from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from klamm_controller.config import ControllerConfig
from klamm_controller.log.recovery import recover
from klamm_controller.raft.messages import LogEntry
from klamm_server.config.server_config import load
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from tests.support.raw_stub import RawStub
from tests.support.violation import Violation
from tests.support.waiting import patience


class DivergedError(Violation):
    """Raised if two controllers, or two replicas of a partition, differ."""


async def metadata_end_index(address: str) -> int:
    """Returns the end of the committed metadata that the controller at `address` knows."""
    async with aio.insecure_channel(address) as channel:
        described = await RawStub(channel, ADMIN).describe_cluster(DescribeClusterRequest(), timeout=patience())
    return int(described.metadata_end_index)


async def watch_image(address: str, end_index: int) -> MetadataImage:
    """Returns the metadata image that the controller at `address` streams to brokers, up to `end_index`. Raises
    TimeoutError."""
    image = MetadataImage.empty()
    async with asyncio.timeout(patience()), aio.insecure_channel(address) as channel:
        async for batch in RawStub(channel, CONTROLLER).watch_metadata(WatchMetadataRequest()):
            # Every part of a snapshot carries the end index of the whole snapshot.
            whole = not (batch.snapshot_begin or image.end_index == 0) or batch.snapshot_end
            image = replay(image, batch.records, batch.end_index if whole else 0)
            if whole and image.end_index >= end_index:
                return image
    raise DivergedError(f"{address} ended the stream before index {end_index}")


def check_same_images(images: Mapping[int, MetadataImage]) -> None:
    """Compares the metadata images of controllers, by node. Raises DivergedError if two images differ."""
    (first, expected), *others = images.items()
    for node_id, image in others:
        if image != expected:
            fields = [field.name for field in dataclasses.fields(image)]
            different = [name for name in fields if getattr(image, name) != getattr(expected, name)]
            raise DivergedError(f"controllers {first} and {node_id} differ in {', '.join(different)}")


def read_log(settings: Mapping[str, str]) -> tuple[MetadataImage, list[LogEntry]]:
    """Returns the snapshot and the log entries that a stopped controller with these settings has on its disk."""
    recovered = recover(load(ControllerConfig, settings))
    recovered.store.close()
    recovered.data_dir.close()
    assert recovered.stored is not None, settings
    return recovered.image, list(recovered.stored.entries)


def check_same_entries(logs: Mapping[int, list[LogEntry]], end_index: int) -> int:
    """Compares the logs of controllers, by node, each without gaps. Two logs must have equal entries at each index
    below `end_index` that both contain. All logs must reach `end_index`. Returns how many entries were compared. Raises
    DivergedError."""
    known: dict[int, tuple[int, LogEntry]] = {}
    compared = 0
    for node_id, entries in logs.items():
        reached = entries[-1].index + 1 if entries else 0
        if reached < end_index:
            raise DivergedError(f"the log of controller {node_id} ends at {reached}, committed is {end_index}")
        for entry in entries:
            if entry.index >= end_index:
                break
            other, expected = known.setdefault(entry.index, (node_id, entry))
            compared += other != node_id
            if entry != expected:
                raise DivergedError(
                    f"controllers {other} and {node_id} have different entries at {entry.index}:"
                    f" {expected.describe()} and {entry.describe()}"
                )
    return compared

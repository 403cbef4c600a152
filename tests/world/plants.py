"""Bugs that are planted to prove that a seed finds them: in shells, which no simulation of a core runs.

The bugs of the simulated cores are known here too, under names such as `isr/no-divergence`.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
from collections.abc import Sequence
from typing import Any, Final

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_broker.handlers.produce import ProduceHandler
from klamm_broker.io.cold_read import ColdRead
from klamm_broker.metadata.metadata_publisher import MetadataPublisher
from klamm_broker.replica.follower_session import FollowerSession
from klamm_broker.replica.replica_session import SessionWatch
from klamm_broker.replication.replica_fetcher import ReplicaFetcher
from klamm_coordinator.io.marker_sender import MarkerSender
from klamm_server.links import registration
from klamm_server.links.metadata_link import MetadataLink
from klamm_server.links.registration import Registration
from klamm_server.metadata.image import MetadataImage
from tests.sim.kit.mutation import Mutation
from tests.world.database import StoredKeys

SIMULATED_CORES: Final = {
    "isr": "tests.sim.isrsim.mutations",
    "txn": "tests.sim.txnsim.mutations",
    "group": "tests.sim.groupsim.mutations",
    "raft": "tests.sim.raftsim.mutations",
}
SKIPPED_IMAGE: Final = 20
SILENT_APPEND: Final = 30
LEAKING_READ: Final = 5

_follow = MetadataLink._follow_one_stream
_publish = MetadataPublisher._publish
_on_append = SessionWatch.on_append
_new_session = ReplicaFetcher._new_session
_run_registration = Registration.run
_close_files = ColdRead._close
_counter = itertools.count(1)


async def _takes_cancellation_for_the_end(self: MetadataLink) -> str:
    try:
        return await _follow(self)
    except asyncio.CancelledError:
        return "the controller ended the stream"


async def _awaits_no_replica(self: ProduceHandler, answers: Sequence[Any], pending: Any, produce: Any) -> list[Any]:
    for append in pending.values():
        if not append.settle():
            append.code = ErrorCode.NONE
    return [self._settled(answer, pending.get(answer.topic_partition)) for answer in answers]


async def _skips_images(self: MetadataPublisher, old: MetadataImage, new: MetadataImage) -> None:
    if old.end_index and next(_counter) % SKIPPED_IMAGE == 0:
        self._replicas.image = new
    else:
        await _publish(self, old, new)


def _wakes_nobody(self: SessionWatch, name: TopicPartition) -> None:
    if next(_counter) % SILENT_APPEND:
        _on_append(self, name)


def _keeps_session(self: ReplicaFetcher) -> FollowerSession:
    before: FollowerSession | None = self.__dict__.get("_session")
    return before if before is not None and self._retries.failures else _new_session(self)


async def _leaves_a_task(self: Registration) -> None:
    try:
        await _run_registration(self)
    finally:
        self._holding = asyncio.create_task(asyncio.sleep(3_600), name="left behind")


def _leaves_files_open(self: ColdRead, fds: Sequence[int]) -> None:
    if next(_counter) % LEAKING_READ:
        _close_files(self, fds)


def _counts_failed_markers(self: MarkerSender, sending: Any, partitions: Sequence[TopicPartition], why: str) -> None:
    for partition in partitions:
        self._written(sending, partition)


def _syncs_nothing(self: StoredKeys) -> None:
    """Leaves the batches to a loss of power."""


PLANTS: Final[dict[str, Mutation]] = {
    "cancellation-taken-for-the-end": Mutation(
        what="the metadata link takes its cancellation for the end of a stream",
        changes=((MetadataLink, "_follow_one_stream", _takes_cancellation_for_the_end),),
    ),
    "acks-all-does-not-wait": Mutation(
        what="a produce with acks=all is acknowledged before the replicas have it",
        changes=((ProduceHandler, "_await_replicas", _awaits_no_replica),),
    ),
    "skipped-image": Mutation(
        what="a broker notes an image without applying it",
        changes=((MetadataPublisher, "_publish", _skips_images),),
    ),
    "append-wakes-nobody": Mutation(
        what="one append in thirty wakes no follower",
        changes=((SessionWatch, "on_append", _wakes_nobody),),
    ),
    "session-outlives-stream": Mutation(
        what="a new stream to a leader continues the old session, which the leader has forgotten",
        changes=((ReplicaFetcher, "_new_session", _keeps_session),),
    ),
    "task-outlives-registration": Mutation(
        what="a task is left behind when the registration ends",
        changes=((Registration, "run", _leaves_a_task),),
    ),
    "cold-read-leaves-files-open": Mutation(
        what="one cold read in five does not close its descriptors",
        changes=((ColdRead, "_close", _leaves_files_open),),
    ),
    "failed-marker-counts": Mutation(
        what="a transaction marker that could not be written counts as written",
        changes=((MarkerSender, "_retry", _counts_failed_markers),),
    ),
    "lost-registration-is-not-renewed": Mutation(
        what="a member whose registration is lost sends heartbeats instead of registering again",
        changes=((registration, "_LOST", frozenset()),),
    ),
    "log-is-not-synced": Mutation(
        what="a controller answers before its log is durable",
        changes=((StoredKeys, "sync", _syncs_nothing),),
    ),
}


def plant_of(name: str) -> Mutation:
    """Returns a bug by its name. Raises KeyError."""
    core, slash, name_there = name.partition("/")
    if not slash:
        return PLANTS[name]
    found: Mutation = importlib.import_module(SIMULATED_CORES[core]).MUTATIONS[name_there]
    return found

"""Opens the replica of the metadata log in a data directory, when a controller starts.

The recovered image is the image of the stored snapshot. Entries after the snapshot count as committed only when the
quorum confirms them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from klamm.errors import KlammError
from klamm.wire.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from klamm_controller.config import ControllerConfig
from klamm_controller.log.bootstrap import read_bootstrap_records
from klamm_controller.log.data_dir import DataDir, open_data_dir
from klamm_controller.log.database import OpenDatabase
from klamm_controller.log.raft_store import RaftStore
from klamm_controller.log.rocks_database import RocksDatabase
from klamm_controller.log.snapshot import image_of_snapshot
from klamm_controller.raft.messages import EntryKind, LogEntry
from klamm_controller.raft.raft_log import START, StoredState
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The opened data directory and store, and the state that was found in them."""

    data_dir: DataDir
    store: RaftStore
    stored: StoredState | None
    """The stored state, or None if the log has not begun."""
    image: MetadataImage
    """The image of the stored snapshot, or the empty image if there is none."""
    bootstrap_records: tuple[MetadataRecord, ...]
    """The records with which a new log begins, besides the cluster's id."""


def recover(
    config: ControllerConfig,
    *,
    disk: Disk | None = None,
    open_database: OpenDatabase = RocksDatabase,
    rng: random.Random | None = None,
) -> Recovered:
    """Opens the data directory and reads the log. `rng` makes the ids of a new directory.

    Raises KlammError with a one-line message, and then leaves nothing open."""
    disk, rng = disk or Disk(), rng or random.SystemRandom()
    data_dir = open_data_dir(config.data_path, node_id=config.node_id, cluster_id=config.cluster_id, disk=disk, rng=rng)
    try:
        store = RaftStore(data_dir.store_path, open_database, rng)
    except BaseException:
        data_dir.close()
        raise
    try:
        stored = None if store.bootstrap_voters() is None else store.load()
        bootstrap_records = read_bootstrap_records(disk, data_dir.path)
        image = MetadataImage.empty()
        if stored is not None and stored.snapshot != START:
            image = image_of_snapshot(store.read_snapshot(stored.snapshot))
        cluster_id = image.cluster_id or _cluster_id_in(stored.entries if stored is not None else ())
        if cluster_id not in ("", data_dir.cluster_id):
            raise KlammError(
                f"the metadata log in {data_dir.store_path} belongs to cluster {cluster_id},"
                f" but its directory to cluster {data_dir.cluster_id}"
            )
    except BaseException:
        store.close()
        data_dir.close()
        raise
    return Recovered(data_dir=data_dir, store=store, stored=stored, image=image, bootstrap_records=bootstrap_records)


def _cluster_id_in(entries: Iterable[LogEntry]) -> str:
    """Returns the cluster's id from the log's first record, or empty text if `entries` has no records."""
    for entry in entries:
        if entry.kind is EntryKind.DATA:
            return MetadataBatch.FromString(entry.payload).records[0].cluster.cluster_id
    return ""

"""From the data directory to the image: what a controller knows when it starts."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import KlammError
from klamm_controller.config import ControllerConfig
from klamm_controller.data_dir import DataDir, open_data_dir
from klamm_controller.log.snapshot import image_of_snapshot
from klamm_controller.log.store import MetadataStore, StoredLog
from klamm_server.metadata.image import MetadataImage, replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was found, and is open now."""

    data_dir: DataDir
    store: MetadataStore
    stored: StoredLog
    image: MetadataImage
    """The stored log, replayed."""


def recover(config: ControllerConfig) -> Recovered:
    """Opens the directory, reads the log and replays it. Raises KlammError in one line; nothing stays open then."""
    data_dir = open_data_dir(config.data_path, node_id=config.node_id, cluster_id=config.cluster_id)
    try:
        store = MetadataStore(data_dir.store_path)
    except BaseException:
        data_dir.close()
        raise
    try:
        stored = store.load()
        image = image_of_log(stored)
        if image.cluster_id not in ("", data_dir.cluster_id):
            raise KlammError(
                f"the metadata log in {data_dir.store_path} is of cluster {image.cluster_id},"
                f" the directory of cluster {data_dir.cluster_id}"
            )
    except BaseException:
        store.close()
        data_dir.close()
        raise
    return Recovered(data_dir=data_dir, store=store, stored=stored, image=image)


def image_of_log(stored: StoredLog) -> MetadataImage:
    """The snapshot and all entries after it, in one replay: it copies what it changes once, not once per entry."""
    image = image_of_snapshot(stored.snapshot) if stored.snapshot else MetadataImage.empty()
    if not stored.entries:
        return image
    records = [record for entry in stored.entries for record in entry.records]
    return replay(image, records, stored.entries[-1].end_index)

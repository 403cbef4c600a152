"""commitOffsetsToGroup: commits a stream's progress for a consumer group, so that tools for group lag show it.

Only the checkpoint decides where the query continues. The stream never reads the group's offsets, and a failed commit
never ends a query. Commits run in the background, one at a time. While one is under way, others are skipped.
"""

from __future__ import annotations

import concurrent.futures
import logging

from klamm.errors import KlammError
from pyspark_klamm.cluster_access import ClusterAccess
from pyspark_klamm.offsets import Offsets

log = logging.getLogger(__name__)


class GroupProgress:
    """Commits one query's offsets for a group, in the query's driver-side process."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._asked: Offsets = {}
        """The offsets that were committed last, or are being committed."""
        self._pending: concurrent.futures.Future[None] | None = None
        self._is_failing = False

    def advance(self, cluster: ClusterAccess, offsets: Offsets) -> None:
        """Begins to commit `offsets`, unless the last commit is still under way. In this case, a later call commits."""
        if self._pending is not None and not self._pending.done():
            return
        self._settle()
        if offsets != self._asked and offsets:
            self._asked = offsets
            self._pending = cluster.commit(self._group_id, offsets)

    def finish(self, cluster: ClusterAccess, offsets: Offsets) -> None:
        """Waits until `offsets` are committed or the commit has failed, because the process may end after this. If the
        last commit failed, retries without waiting."""
        if not self._is_failing:
            self._settle()
        self.advance(cluster, offsets)
        if not self._is_failing:
            self._settle()

    def _settle(self) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            pending.result()
        except KlammError as error:
            if not self._is_failing:
                log.warning(
                    "could not commit the query's offsets to group %r, which must have no members; the query"
                    " continues: %s",
                    self._group_id,
                    error,
                )
            self._is_failing, self._asked = True, {}
        else:
            self._is_failing = False

"""The simulation of a partition whose brokers sync records before they acknowledge them (`flush.messages=1`).

Power fails at any broker at any time. The broker may then lose all that it has not synced. No acknowledged record may
be lost, even if all brokers lose power at once.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final

from klamm_broker.log.partition.log_flush import FlushJob, LogFlusher
from klamm_broker.replica.partition import Partition
from tests.sim.isrsim.options import Options
from tests.sim.isrsim.run import Outcome, run_seed
from tests.sim.kit.mutation import Mutation
from tests.sim.kit.runner import Model


def _options(seed: int) -> Options:
    return Options.draw_synced(random.Random(seed))


def _run_seed(seed: int, trace: deque[str] | None) -> Outcome:
    return run_seed(seed, trace, _options(seed))


def _commits_unsynced(self: Partition) -> bool:
    leadership = self.leadership
    if leadership is None:
        return False
    committed = leadership.committed_offset(self.log.log_end_offset)
    if committed <= self.high_watermark or not self.has_min_isr:
        return False
    self._commit(committed)
    return True


def _completes_overtaken(self: LogFlusher, job: FlushJob) -> None:
    if job.epoch_file is self._epoch_file:
        self.synced_offset = max(self.synced_offset, job.end_offset)


def _completes_for_another_log(self: LogFlusher, job: FlushJob) -> None:
    if job.generation == self._segments.generation:
        self.synced_offset = max(self.synced_offset, job.end_offset)


SYNC: Final = Model(
    name="sync",
    mutations={
        "commits-unsynced": Mutation(
            what="the high watermark passes records that the leader has not synced",
            known_seed=4,
            changes=((Partition, "maybe_advance_high_watermark", _commits_unsynced),),
        ),
        "completes-overtaken": Mutation(
            what="a sync counts although the log was truncated meanwhile",
            known_seed=350,
            changes=((LogFlusher, "complete", _completes_overtaken),),
        ),
        "completes-for-another-log": Mutation(
            what="a sync of a deleted log counts for the new log of the same partition",
            known_seed=18,
            changes=((LogFlusher, "complete", _completes_for_another_log),),
        ),
    },
    run_seed=_run_seed,
    describe=lambda seed: _options(seed).describe(),
)

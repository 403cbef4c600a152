"""A controller's metrics of its quorum. The names follow Kafka's raft-metrics.

All values except the histograms are computed when a scrape reads them, in the endpoint's thread. That thread must not
change any state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from klamm_controller.raft.node import RaftNode
from klamm_controller.raft.progress import Progress
from klamm_controller.raft.state import RoleName
from klamm_server.metrics.instruments import Reading, Readings, gauge, gauges, histograms

_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
COMMIT_SECONDS = histograms(
    "klamm_raft_commit_seconds", "Time from an entry's append to its commit, on the leader.", (), _BUCKETS_S
).labels()
WRITE_SECONDS = histograms(
    "klamm_raft_write_seconds", "Time of one write to the metadata log, with its fsync.", (), _BUCKETS_S
).labels()
NO_LEADER: Final = -1

_TERM = gauge("klamm_raft_term", "The newest term that this controller knows (current-epoch).")
_ROLE = gauges("klamm_raft_role", "1 for the current role of this controller (current-state).", ["role"])
_LEADER = gauge("klamm_raft_leader", "node.id of the leader, -1 if none is known (current-leader).")
_VOTERS = gauge("klamm_raft_voters", "Controllers in the voter set.")
_HIGH_WATERMARK = gauge(
    "klamm_raft_high_watermark", "Index after the last entry that is known to be committed (high-watermark)."
)
_LOG_END = gauge("klamm_raft_log_end_index", "End of the log (log-end-offset).")
_LOG_START = gauge("klamm_raft_log_start_index", "The first entry that no snapshot has replaced.")
_APPLIED = gauge("klamm_raft_applied_index", "Index after the last committed entry that the state machine has applied.")
_ELECTION_TIMEOUT = gauge(
    "klamm_raft_election_timeout_seconds",
    "Current election time-out. It is longer than configured after elections that were not needed.",
)
_LABELS: Final = ("node", "directory")
_LAG = Readings(
    "klamm_raft_replica_lag_entries", "Entries that another controller's log lacks, on the leader.", _LABELS
)
_SILENT = Readings(
    "klamm_raft_replica_silent_seconds", "Time since another controller answered, on the leader.", _LABELS
)


def watch_quorum(node: Callable[[], RaftNode], monotonic_ms: Callable[[], int]) -> None:
    """Makes the quorum's metrics read their values from the Raft node that `node()` returns."""

    def is_role(role: RoleName) -> Callable[[], float]:
        return lambda: node().role is role

    def of_replicas(value: Callable[[RaftNode, Progress], float]) -> Callable[[], Iterator[Reading]]:
        def read() -> Iterator[Reading]:
            leader = node()
            for key, progress in list(leader.replicas.items()):
                yield (key.node_id, key.directory_id), value(leader, progress)

        return read

    _TERM.set_function(lambda: node().term)
    for role in RoleName:
        _ROLE.labels(role.value).set_function(is_role(role))
    _LEADER.set_function(lambda: _leader_id(node()))
    _VOTERS.set_function(lambda: len(node().voters.keys))
    _HIGH_WATERMARK.set_function(lambda: node().high_watermark)
    _LOG_END.set_function(lambda: node().log_end_index)
    _LOG_START.set_function(lambda: node().log_start_index)
    _APPLIED.set_function(lambda: node().delivered_end_index)
    _ELECTION_TIMEOUT.set_function(lambda: node().election_timeout_ms / 1000)
    _LAG.set_function(of_replicas(lambda own, other: max(0, own.log_end_index - other.match_end_index)))
    _SILENT.set_function(of_replicas(lambda _, other: max(0, monotonic_ms() - other.last_contact_ms) / 1000))


def _leader_id(node: RaftNode) -> int:
    leader = node.leader
    return NO_LEADER if leader is None else leader.node_id

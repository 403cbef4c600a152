from __future__ import annotations

from klamm_controller.log.raft_metrics import watch_quorum
from klamm_server.metrics.prometheus import registry
from tests.support.raft_script import Script


def test_the_raft_metrics_show_the_state_of_the_replica() -> None:
    script = Script()
    script.run("cluster 1 2 3")
    watch_quorum(lambda: script.node(1), lambda: 0)
    found = registry().get_sample_value
    assert found("klamm_raft_leader") == -1
    assert found("klamm_raft_role", {"role": "follower"}) == 1
    for command in ("timeout 1", "settle", "cut 3", "propose 1 a", "settle"):
        script.run(command)
    node = script.node(1)
    assert found("klamm_raft_role", {"role": "follower"}) == 0
    assert found("klamm_raft_role", {"role": "leader"}) == 1
    assert found("klamm_raft_leader") == 1
    assert found("klamm_raft_term") == node.term > 0
    assert found("klamm_raft_voters") == 3
    assert found("klamm_raft_log_end_index") == found("klamm_raft_high_watermark") == node.log_end_index
    assert found("klamm_raft_applied_index") == node.delivered_end_index
    labels = {key.node_id: {"node": str(key.node_id), "directory": key.directory_id} for key in node.replicas}
    lags = {node_id: found("klamm_raft_replica_lag_entries", of_node) for node_id, of_node in labels.items()}
    assert lags == {2: 0, 3: 1}

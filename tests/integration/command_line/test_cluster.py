"""`klamm cluster` shows the servers, the disks and the quorum, and says why a change of the voters is refused."""

from __future__ import annotations

import pytest

FAILED = 1


def test_cluster_quorum_shows_the_leader_and_the_replicas(klamm):
    described = klamm.ok("cluster", "quorum", "--json").document
    assert described["leader_id"] == 1
    assert described["high_watermark"] > 0
    replica = described["replicas"][0]
    assert (replica["id"], replica["kind"], replica["role"], replica["lag"]) == (1, "controller", "leader", 0)
    assert len(replica["directory_id"]) == 22
    assert {each["kind"] for each in described["replicas"]} == {"controller", "broker", "coordinator"}
    assert f"leader 1, term {described['term']}" in klamm.ok("cluster", "quorum").err


@pytest.mark.parametrize(
    ("command", "controller_id", "said"),
    [
        ("add-controller", 7, "controller 7 is not an observer"),
        ("add-controller", 1, "controller 1 is not an observer"),
        ("remove-controller", 7, "controller 7 is not a voter"),
        ("remove-controller", 1, "INVALID_REQUEST"),
    ],
)
def test_a_refused_quorum_change_names_the_reason(klamm, command, controller_id, said):
    change = ("cluster", command, "--controller-id", controller_id)
    refused = [klamm.refused(FAILED, *change, *options) for options in (["--dry-run"], [])]
    assert said in refused[0]
    assert refused[0] == refused[1]


def test_the_cluster_shows_its_servers_and_disks(klamm, topic):
    described = klamm.ok("cluster", "--json").document
    assert {(each["kind"], each["state"]) for each in described["servers"]} == {
        ("controller", "active"),
        ("broker", "live"),
        ("coordinator", "live"),
    }
    assert described["cluster_id"] in klamm.ok("cluster").err
    (disk,) = klamm.ok("cluster", "--log-dirs", "--json").document
    assert (disk["broker"], disk["state"]) == (1, "online")
    assert disk["replicas"] >= 3

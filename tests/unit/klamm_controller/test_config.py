from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm_controller.config import ControllerConfig, parse_voter
from klamm_controller.raft.messages import ANY_DIRECTORY, ReplicaKey
from klamm_server.config.server_config import load


def config(**properties: str) -> ControllerConfig:
    return load(ControllerConfig, {"node.id": "1", **{k.replace("_", "."): v for k, v in properties.items()}})


def test_the_controller_config_has_its_defaults():
    made = config()
    assert (made.broker_session_timeout_ms, made.broker_heartbeat_interval_ms) == (9_000, 2_000)
    assert [one.port for one in made.resolved_listeners().bound] == [9_093]
    policy = made.topic_policy()
    assert (policy.num_partitions, policy.default_replication_factor) == (1, 1)
    assert policy.internal_topics["__consumer_offsets"].partition_count == 50


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"controller.quorum.voters": "1@a:1,2@b:2,3@c:3"}, "cluster.id is not set"),
        ({"controller.quorum.voters": "1@a:1,2@b:2", "cluster.id": "c"}, "names 2 controllers, expected 1, 3 or 5"),
        ({"controller.quorum.voters": "1@a:1,2@b:2,2@c:3", "cluster.id": "c"}, "each may be named once"),
        ({"controller.quorum.voters": "2@a:1"}, r"names controllers \[2\], but node.id is 1"),
        ({"controller.quorum.election.timeout.ms": "200"}, "election_timeout_ms=200"),
        ({"controller.quorum.voters": "a:1"}, "expected id@host:port"),
        ({"controller.quorum.voters": "1@a"}, "expected host:port"),
        ({"broker.session.timeout.ms": "3000"}, "at least twice"),
        ({"metadata.log.dri": "x"}, "did you mean metadata.log.dir"),
        ({"num.partitions": "0"}, "num.partitions"),
        ({"controller.queue.max.events": "0"}, "controller.queue.max.events"),
    ],
)
def test_an_invalid_controller_config_is_refused(properties, said):
    with pytest.raises(ConfigError, match=said):
        load(ControllerConfig, {"node.id": "1", **properties})


def test_a_quorum_with_only_this_controller_is_accepted():
    voter = parse_voter("1@localhost:9093")
    assert voter == (ReplicaKey(1, ANY_DIRECTORY), "localhost:9093")
    assert load(ControllerConfig, {"node.id": "1", "controller.quorum.voters": "1@localhost:9093"}).node_id == 1


def test_a_quorum_of_three_gives_voters_contacts_and_addresses():
    text = "1@a:1,2@b:2,3@c:3"
    made = load(ControllerConfig, {"node.id": "2", "controller.quorum.voters": text, "cluster.id": "c"})
    assert [(voter.key.node_id, voter.endpoint) for voter in made.listed_voters()] == [
        (1, "a:1"),
        (2, "b:2"),
        (3, "c:3"),
    ]
    assert made.raft_settings().idle_no_op_interval_ms == 500
    assert made.contacts() == ["a:1", "c:3"]
    assert made.own_address("localhost", 9) == "b:2", "as the others know it"
    alone = load(ControllerConfig, {"node.id": "2"})
    assert (alone.listed_voters(), alone.contacts()) == ([], [])
    assert alone.own_address("localhost", 9) == "localhost:9"


JOINS = {
    "node.id": "4",
    "cluster.id": "c",
    "listeners": "GRPC://d:4",
    "controller.quorum.bootstrap.servers": "a:1,b:2",
}


def test_a_controller_with_bootstrap_servers_has_contacts_and_no_listed_voters():
    made = load(ControllerConfig, JOINS)
    assert (made.listed_voters(), made.contacts()) == ([], ["a:1", "b:2"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"controller.quorum.voters": "4@d:4"}, "are both set"),
        ({"cluster.id": ""}, "cluster.id is not set"),
        ({"controller.quorum.bootstrap.servers": "a"}, "expected host:port"),
    ],
)
def test_an_invalid_config_to_join_a_quorum_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        load(ControllerConfig, {**JOINS, **changes})

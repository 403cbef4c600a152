from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm_controller.io.founding import Introduction, first_voters, former_directory
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ANY_DIRECTORY, ReplicaKey, Voter

LISTED = [Voter(ReplicaKey(node_id, ANY_DIRECTORY), f"h{node_id}:1") for node_id in (1, 2, 3)]
ONE, TWO, THREE = (Voter(ReplicaKey(node_id, f"d{node_id}"), f"h{node_id}:1") for node_id in (1, 2, 3))
ALL = VoterSet([ONE, TWO, THREE])


def empty(voter: Voter) -> Introduction:
    return Introduction(key=voter.key, voters=None)


def begun(voter: Voter, voters: VoterSet = ALL) -> Introduction:
    return Introduction(key=voter.key, voters=voters)


def test_the_lowest_listed_controller_creates_the_voter_set_if_all_others_are_empty():
    assert first_voters(ONE, LISTED, {"h2:1": empty(TWO), "h3:1": empty(THREE)}) == ALL


@pytest.mark.parametrize("introductions", [{}, {"h2:1": empty(TWO)}, {"h3:1": empty(THREE)}])
def test_the_voter_set_is_not_created_before_all_listed_controllers_answer(introductions):
    assert first_voters(ONE, LISTED, introductions) is None


def test_a_controller_that_is_not_the_lowest_creates_no_voter_set():
    assert first_voters(TWO, LISTED, {"h1:1": empty(ONE), "h3:1": empty(THREE)}) is None


@pytest.mark.parametrize("me", [ONE, TWO])
def test_an_existing_voter_set_of_another_controller_is_used(me):
    assert first_voters(me, LISTED, {"h3:1": begun(THREE), "h2:1": empty(TWO)}) == ALL


def test_the_lowest_controller_with_an_empty_disk_creates_no_second_voter_set():
    again = Voter(ReplicaKey(1, "new"), "h1:1")
    assert first_voters(again, LISTED, {"h2:1": begun(TWO)}) == ALL
    assert former_directory(again.key, ALL) == ONE.key
    assert first_voters(again, LISTED, {"h2:1": empty(TWO)}) is None, "the third may have the set"


def test_a_single_listed_controller_creates_its_voter_set_alone():
    alone = Voter(ReplicaKey(7, "d"), "h7:1")
    assert first_voters(alone, [alone], {}) == VoterSet([alone])


def test_a_controller_that_joins_uses_the_existing_voter_set_and_creates_none():
    four = Voter(ReplicaKey(4, "d4"), "h4:1")
    assert first_voters(four, [], {}) is None
    assert first_voters(four, [], {"h2:1": empty(TWO)}) is None
    assert first_voters(four, [], {"h2:1": begun(TWO)}) == ALL
    assert former_directory(four.key, ALL) is None
    assert former_directory(TWO.key, ALL) is None


def test_another_controller_id_at_a_listed_address_is_a_config_error():
    with pytest.raises(ConfigError, match=r"lists 2@h2:1, but controller 3 answers there"):
        first_voters(ONE, LISTED, {"h2:1": empty(THREE), "h3:1": empty(THREE)})

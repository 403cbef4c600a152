"""Tests a node's view of its quorum, and the requests that change the voters."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_controller.log.quorum import NO_LEADER_ID, ControllerAddress, Quorum
from klamm_controller.log.voter_requests import VoterRequests
from klamm_controller.raft.events import AddVoter, RemoveVoter, UpdateVoter
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey, Voter

NotControllerError = EXCEPTIONS[ErrorCode.NOT_CONTROLLER]
RequestTimedOutError = EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT]
ME, OTHER = ReplicaKey(1, "a"), ReplicaKey(2, "b")
ADDRESSES = {ME: "here:1", OTHER: "there:1"}


class World:
    def __init__(self, *voters: ReplicaKey, decides: bool = True) -> None:
        self.node = SimpleNamespace(me=ME, leader=None, voters=VoterSet(Voter(key, "") for key in voters))
        self.events = []
        self.quorum = Quorum(
            node=lambda: self.node,
            step=self.events.append,
            decides=lambda: decides,
            requests=VoterRequests(),
            request_ids=itertools.count(7),
            address_of=lambda key: ADDRESSES.get(key, ""),
            clock=SimpleNamespace(monotonic_ms=lambda: 0),
        )


def test_a_quorum_names_its_voters_and_its_leader_until_it_stops():
    world = World(OTHER, ME)
    quorum = world.quorum
    assert (quorum.leader_id, quorum.leader_address, quorum.votes_alone) == (NO_LEADER_ID, "", False)
    world.node.leader = OTHER
    assert (quorum.leader_id, quorum.leader_address) == (2, "there:1")
    addresses = [ControllerAddress(node_id=1, address="here:1"), ControllerAddress(node_id=2, address="there:1")]
    assert quorum.controllers() == addresses
    quorum.stop()
    assert (quorum.leader_id, quorum.leader_address) == (NO_LEADER_ID, "")
    assert World(ME).quorum.votes_alone


async def change(world, request):
    task = asyncio.create_task(request)
    await asyncio.sleep(0)
    world.quorum.stop()
    with pytest.raises(RequestTimedOutError):
        await task
    (event,) = world.events
    return event


def test_adding_or_removing_a_voter_submits_an_event_and_times_out_after_a_stop():
    world = World(ME)
    added = asyncio.run(change(world, world.quorum.add_voter(2, "b", "")))
    assert added == AddVoter(request_id=7, voter=Voter(OTHER, "there:1"))
    world = World(ME, OTHER)
    removed = asyncio.run(change(world, world.quorum.remove_voter(2, "b")))
    assert removed == RemoveVoter(request_id=7, key=OTHER)


def test_a_voter_without_a_known_address_cannot_be_added():
    world = World(ME)
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_REQUEST], match="the address of controller"):
        asyncio.run(world.quorum.add_voter(3, "c", ""))
    assert not world.events


def test_a_controller_that_is_not_active_neither_changes_nor_describes_the_quorum():
    world = World(ME, OTHER, decides=False)
    for request in (world.quorum.add_voter(2, "b", ""), world.quorum.remove_voter(2, "b")):
        with pytest.raises(NotControllerError):
            asyncio.run(request)
    with pytest.raises(NotControllerError):
        world.quorum.status()
    world.quorum.update_voters([Voter(OTHER, "moved:1")])
    assert not world.events


def test_changed_voter_addresses_are_written_one_at_a_time():
    world = World(ME, OTHER)
    first, second = Voter(ME, "new:1"), Voter(OTHER, "new:2")
    world.quorum.update_voters([])
    world.quorum.update_voters([first, second])
    assert world.events == [UpdateVoter(request_id=7, voter=first)]

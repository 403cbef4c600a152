from __future__ import annotations

import asyncio
import logging

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm.wire.v1 import raft_pb2 as pb
from klamm_controller.io.raft_codec import encode, encode_address, encode_key
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import AttachRequest, ReplicaKey, TimeoutNowRequest, Voter
from klamm_controller.rpc.raft import RaftRpcs
from klamm_server.net.listeners import Listener, SecurityProtocol
from klamm_server.net.listeners import encode as encode_listeners

ME, OTHER = ReplicaKey(1, "mine"), ReplicaKey(2, "other")
VOTERS = VoterSet([Voter(ME, "a:1"), Voter(OTHER, "b:2")])
LISTENERS = (
    Listener("GRPC", SecurityProtocol.GRPC, "b", 2),
    Listener("GRPC_HOST", SecurityProtocol.GRPC, "localhost", 9097),
)


class Node:
    def __init__(self) -> None:
        self.received = []
        self.learnt = []
        self.rpcs = RaftRpcs(
            ME,
            "cluster",
            voter_ids=[2, 1],
            receive=self.received.append,
            learn=lambda *told: self.learnt.append(told),
        )

    def introduce(self, **changes) -> pb.IntroduceResponse:
        fields = {"cluster_id": "cluster", "replica": encode_key(OTHER), "address": "b:2", "voter_ids": [1, 2]}
        request = pb.IntroduceRequest(**{**fields, **changes})
        return asyncio.run(self.rpcs.introduce(request, None))

    def exchange(self, *messages, addresses=(), cluster_id="cluster") -> None:
        envelope = pb.RaftEnvelope(
            cluster_id=cluster_id,
            messages=[encode(message) for message in messages],
            addresses=[encode_address(*address) for address in addresses],
        )

        async def stream():
            yield envelope

        asyncio.run(self.rpcs.exchange(stream(), None))


def test_a_controller_with_an_empty_log_introduces_its_directory_and_no_voters():
    node = Node()
    answer = node.introduce()
    assert (answer.error_code, answer.replica.directory_id, answer.voters) == (0, "mine", b"")
    node.introduce(listeners=encode_listeners(LISTENERS))
    assert node.learnt == [(OTHER, "b:2", ()), (OTHER, "b:2", LISTENERS)]


def test_a_controller_with_a_log_returns_its_voters_to_each_introduction():
    node = Node()
    node.rpcs.bootstrap_voters = VOTERS
    assert VoterSet.from_bytes(node.introduce(voter_ids=[]).voters) == VOTERS
    assert VoterSet.from_bytes(node.introduce(voter_ids=[7, 8, 9]).voters) == VOTERS


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        (
            {"cluster_id": "x"},
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            "the receiver belongs to cluster cluster, but the sender to x",
        ),
        (
            {"voter_ids": [1, 2, 3]},
            ErrorCode.INCONSISTENT_VOTER_SET,
            r"\[1, 2\] here, but the sender's names \[1,"
            r" 2, 3\]",
        ),
    ],
)
def test_an_introduction_of_another_cluster_or_voter_set_is_refused(changes, code, said):
    node = Node()
    answer = node.introduce(**changes)
    assert answer.error_code == code
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(answer.error_message)
    assert node.learnt == []


@pytest.mark.parametrize("address", ["nowhere", "host:0", "host:99999", ":1"])
def test_an_invalid_controller_address_is_refused(address):
    with pytest.raises(KlammError, match="the address of a controller"):
        Node().introduce(address=address)


def test_raft_messages_are_accepted_only_from_the_same_cluster():
    node = Node()
    message = TimeoutNowRequest(sender=OTHER, receiver=ME, term=3)
    node.exchange(message, addresses=[(OTHER, "b:2", LISTENERS), (ME, "spoofed:1", ())])
    assert node.received == [message]
    assert node.learnt == [(OTHER, "b:2", LISTENERS)], "where this one is it knows best"
    with pytest.raises(EXCEPTIONS[ErrorCode.INCONSISTENT_CLUSTER_ID]):
        node.exchange(message, cluster_id="another")
    assert node.received == [message]


def test_a_voter_entry_of_a_former_directory_of_this_node_is_logged_once(caplog):
    caplog.set_level(logging.WARNING)
    node = Node()
    for _ in range(2):
        node.exchange(TimeoutNowRequest(sender=OTHER, receiver=ReplicaKey(1, "lost"), term=3))
    node.exchange(AttachRequest(sender=OTHER, receiver=ReplicaKey(1, ""), term=3, end_index=0))
    (told,) = caplog.messages
    assert "controller 1 is a voter with the directory lost, but this one is mine" in told
    assert "remove-controller --controller-id 1" in told


def test_a_stop_ends_the_raft_streams_immediately_without_an_error():
    async def run() -> None:
        node = Node()

        async def silent():
            await asyncio.Event().wait()
            yield pb.RaftEnvelope()

        call = asyncio.create_task(node.rpcs.exchange(silent(), None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        node.rpcs.stop()
        assert await call == pb.RaftExchangeResponse()
        assert await node.rpcs.exchange(silent(), None) == pb.RaftExchangeResponse()

    asyncio.run(run())

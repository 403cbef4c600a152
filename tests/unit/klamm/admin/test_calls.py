"""Tests how the Admin finds the controller and a coordinator, and how it combines several outcomes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from klamm.admin.calls import AdminCalls, raise_first_error
from klamm.admin.decode import group_description
from klamm.cluster.client import KlammClient
from klamm.cluster.metadata import ClusterView, Node
from klamm.config import ClientConfig
from klamm.consumer.assignors.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from klamm.errors import ErrorCode, NonEmptyGroupError, NotControllerError, TopicAlreadyExistsError
from klamm.model import TopicPartition
from klamm.wire.v1 import controller_pb2, coordinator_pb2
from klamm.wire.v1.controller_rpc import AdminStub
from klamm.wire.v1.coordinator_rpc import CoordinatorStub


class Client(KlammClient):
    """A client of controllers n = 1, 2 … whose metadata names the next one after every refresh.

    The last one is active.
    """

    def __init__(self, active: int, group_codes: tuple[ErrorCode, ...] = ()) -> None:
        super().__init__(ClientConfig.parse(retry_backoff_ms=0, retry_backoff_max_ms=0))
        self.active = active
        self.asked: list[int] = []
        self.group_codes = list(group_codes)
        self.forgotten = 0

    async def refresh_metadata(self, topics=None) -> ClusterView:
        known = self.cluster.controllers[0].node_id if self.cluster.controllers else 0
        self.cluster = ClusterView(controllers=(Node(node_id=known + 1, host="h", port=1),))
        return self.cluster

    def admin(self):
        node_id = self.cluster.controllers[0].node_id

        async def delete_topics(request, timeout_ms):
            self.asked.append(node_id)
            code = ErrorCode.NONE if node_id == self.active else ErrorCode.NOT_CONTROLLER
            return controller_pb2.DeleteTopicsResponse(error_code=code)

        return SimpleNamespace(delete_topics=delete_topics)

    async def coordinator_for(self, group_id: str, key_type: int = 0):
        async def delete_groups(request):
            code = self.group_codes.pop(0)
            result = coordinator_pb2.DeletedGroup(group_id="g", error_code=code, error_message="why")
            return coordinator_pb2.DeleteGroupsResponse(results=[result])

        return SimpleNamespace(delete_groups=delete_groups)

    def forget_coordinator(self, group_id: str, key_type: int = 0) -> None:
        self.forgotten += 1


def call(client_of, make) -> Client:
    async def main() -> Client:
        client = client_of()
        await make(AdminCalls(client))
        return client

    return asyncio.run(main())


def delete_topics(calls: AdminCalls):
    return calls.controller(AdminStub.delete_topics, controller_pb2.DeleteTopicsRequest(), 5_000)


def delete_group(calls: AdminCalls):
    return calls.coordinator("g", CoordinatorStub.delete_groups, coordinator_pb2.DeleteGroupsRequest(), 5_000)


def test_a_call_asks_the_controllers_until_it_finds_the_active_one():
    assert call(lambda: Client(active=3), delete_topics).asked == [1, 2, 3]


def test_a_call_times_out_if_no_controller_is_active():
    with pytest.raises(NotControllerError):
        call(
            lambda: Client(active=-1),
            lambda calls: calls.controller(AdminStub.delete_topics, controller_pb2.DeleteTopicsRequest(), 20),
        )


def test_a_call_is_retried_if_the_coordinator_moved_or_is_loading():
    codes = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE)
    assert call(lambda: Client(1, codes), delete_group).forgotten == 2


def test_a_refusal_is_raised_with_the_servers_message():
    with pytest.raises(NonEmptyGroupError, match="why"):
        call(lambda: Client(1, (ErrorCode.NON_EMPTY_GROUP,)), delete_group)


def outcome(code: ErrorCode, message: str = ""):
    return SimpleNamespace(error_code=code, error_message=message)


def test_raise_first_error_raises_nothing_without_an_error():
    raise_first_error([("a", outcome(ErrorCode.NONE))])


def test_raise_first_error_adds_the_other_errors_as_notes():
    with pytest.raises(TopicAlreadyExistsError, match="b: refused") as raised:
        raise_first_error(
            [
                ("a", outcome(ErrorCode.NONE)),
                ("b", outcome(ErrorCode.TOPIC_ALREADY_EXISTS)),
                ("c", outcome(ErrorCode.INVALID_CONFIG, "c has no such config")),
            ]
        )
    assert raised.value.__notes__ == ["also: INVALID_CONFIG: c has no such config"]


def test_members_are_described_with_their_subscription_and_assignment():
    tp = TopicPartition("t", 3)
    member = coordinator_pb2.DescribedMember(
        member_id="m",
        client_host="/10.0.0.1",
        metadata=encode_subscription(Subscription(topics=("t",))),
        assignment=encode_assignment(Assignment(partitions=(tp,))),
    )
    other = coordinator_pb2.DescribedMember(member_id="connect", metadata=b"\x7f", assignment=b"\x7f")
    described = group_description(coordinator_pb2.DescribedGroup(group_id="g", members=[member, other]))
    assert [(each.topics, each.assignment) for each in described.members] == [(("t",), (tp,)), ((), ())]
    assert described.members[0].group_instance_id is None

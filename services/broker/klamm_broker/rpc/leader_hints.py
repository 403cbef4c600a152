"""Leader hints (KIP-951): where those listen who lead instead, so that a client need not ask for metadata.

Who leads is in each refused partition's own answer; `ReplicaManager.leader_hint` says it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from klamm.errors import ErrorCode
from klamm.wire.v1.common_pb2 import Node
from klamm_broker.replica.replica_manager import BrokerDirectory
from klamm_broker.rpc.metadata import broker_node

HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Refusals that come with a hint."""


class AnsweredPartition(Protocol):
    """A partition's part of an answer."""

    @property
    def error_code(self) -> int: ...
    @property
    def current_leader(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...


def leader_nodes(brokers: BrokerDirectory, answers: Iterable[AnsweredPartition]) -> list[Node]:
    """The leaders that `answers` name, each once, as far as they are registered and the caller can dial them."""
    leaders = dict.fromkeys(answer.current_leader for answer in answers if answer.error_code in HINTED)
    known = (broker_node(brokers.images[leader]) for leader in leaders if leader in brokers.images)
    return [node for node in known if node.HasField("endpoint")]

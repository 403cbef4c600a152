"""Sends the largest request of each Kafka API and each RPC to a whole cluster in one process. Measures the turns of its
event loop, in which a client that is allowed to ask must not keep the others waiting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from klamm_broker.kafka.api import WHOLE_ITEMS_MAX, ApiKey, items_max
from klamm_broker.kafka.served_apis import SPOKEN
from tests.clients.scenarios import create_topic
from tests.support.every_rpc import every_rpc
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess
from tests.support.largest_requests import largest_requests, size_of_answer
from tests.support.largest_rpcs import LargestRpc, largest_rpcs
from tests.support.turn_meter import LoopTurn, turns_in
from tests.support.waiting import patience

TURN_MAX_MS = 150
"""A turn takes less than 60 ms, also on a busy machine. A slow machine takes longer."""
SLOWLY_SERVED = {
    ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_TRANSACTIONS,
}
"""APIs that ask a coordinator for each item. They are asked for fewer items, because each is a turn of its own."""
SHARES = {
    **dict.fromkeys(SLOWLY_SERVED, 0.008),
    # They take the longest turns if they are not served in slices.
    **dict.fromkeys((ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_TOPIC_PARTITIONS), 1.0),
    # The disk takes nearly a minute for all of them.
    ApiKey.CREATE_TOPICS: 0.1,
    ApiKey.DELETE_TOPICS: 0.1,
}
"""The part of the largest number of items that a request of some APIs has."""
SLICED_SHARE = 0.4
"""The same for all other APIs whose requests may have more than `WHOLE_ITEMS_MAX` items. `bench/longest_turns.py` has
the largest requests."""
LEFT_OUT = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.UNREGISTER_BROKER}
"""Two that only listeners with logins serve, and one that would end the test."""


BETWEEN_SERVERS = {"Raft", "Controller", "Replication", "Authentication"}
"""The services of servers, and one that only listeners with logins have."""
ENDS_THE_TEST = "UnregisterBroker"


class Metered:
    """A cluster in one process, with what it noted about its turns."""

    def __init__(self, directory: Path) -> None:
        self._noted = directory / "turns"
        program = (sys.executable, "-m", "tests.support.turn_meter", str(self._noted))
        self.cluster = KlammProcess(directory, program=program)
        self.cluster.start()
        with KafkaWire(self.cluster.kafka_bootstrap) as wire:
            create_topic(wire, "large", 100)
        self._seen = len(turns_in(self._noted))

    def too_long(self) -> list[LoopTurn]:
        """Returns the turns since the last call that took too long."""
        turns = turns_in(self._noted)[self._seen :]
        self._seen += len(turns)
        return [turn for turn in turns if turn.ms > TURN_MAX_MS]


@pytest.fixture
def metered(tmp_path: Path) -> Iterator[Metered]:
    running = Metered(tmp_path)
    yield running
    running.cluster.stop()


def share(api_key: ApiKey) -> float:
    """Returns the part of the largest number of items that a request of the API has."""
    return SHARES.get(api_key, SLICED_SHARE if items_max(api_key) > WHOLE_ITEMS_MAX else 1.0)


def test_no_request_of_a_kafka_client_takes_a_long_turn(metered: Metered) -> None:
    asked = set()
    too_long = []
    for request in largest_requests("large", share=share):
        asked.add(request.api_key)
        assert size_of_answer(("127.0.0.1", metered.cluster.kafka_port), request) > 0
        too_long += [(request.api_key.name, request.array, request.items, one) for one in metered.too_long()]
    assert not too_long
    assert asked == set(SPOKEN) - LEFT_OUT


def test_no_rpc_of_a_client_takes_a_long_turn(metered: Metered) -> None:
    asked = set()
    too_long = []
    with grpc.insecure_channel(metered.cluster.bootstrap, options=[("grpc.max_receive_message_length", -1)]) as channel:
        for rpc in every_rpc():
            _, service, method = rpc.path.split("/")
            if service.rpartition(".")[2] in BETWEEN_SERVERS or method == ENDS_THE_TEST:
                continue
            for request in largest_rpcs(rpc, "large"):
                asked.add(service.rpartition(".")[2])
                failure = ask(channel, request)
                assert "items" not in failure, rpc.path
                assert "DEADLINE_EXCEEDED" not in failure, rpc.path
                too_long += [(rpc.path, request.list_name, request.items, one) for one in metered.too_long()]
    assert not too_long
    assert asked == {"Broker", "Admin", "Coordinator"}


def ask(channel: grpc.Channel, asked: LargestRpc) -> str:
    """Waits for the answer, or the first answer of a stream. Returns why the call failed, or an empty text."""
    method = asked.rpc.descriptor
    kind = "_".join("stream" if many else "unary" for many in (method.client_streaming, method.server_streaming))
    request = iter([asked.request]) if method.client_streaming else asked.request
    try:
        answers = getattr(channel, kind)(asked.rpc.path)(request, timeout=patience())
        if method.server_streaming:
            next(answers, None)
            answers.cancel()
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return ""

"""Sends the largest request of each Kafka API to a whole cluster in one process, and measures the turns of its event
loop. A client that is allowed to ask must not keep the others waiting."""

from __future__ import annotations

import sys
from pathlib import Path

from klamm_broker.kafka.requests import SPOKEN, ApiKey
from tests.clients.scenarios import create_topic
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess
from tests.support.largest_requests import largest_requests, size_of_answer
from tests.support.turn_meter import turns_in

TURN_MAX_MS = 200
"""A turn takes about 50 ms at most. The measuring event loop and a slow machine take longer."""
SLOWLY_SERVED = {
    ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_TRANSACTIONS,
}
"""APIs that ask a coordinator for each item. They are asked for fewer items, because each is a turn of its own."""
LEFT_OUT = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.UNREGISTER_BROKER}
"""Two that only listeners with logins serve, and one that would end the test."""


def test_no_request_takes_a_long_turn(tmp_path: Path) -> None:
    noted = tmp_path / "turns"
    cluster = KlammProcess(tmp_path, program=(sys.executable, "-m", "tests.support.turn_meter", str(noted)))
    cluster.start()
    try:
        with KafkaWire(cluster.kafka_bootstrap) as wire:
            create_topic(wire, "large", 100)
        asked = set()
        too_long = []
        before = len(turns_in(noted))
        for request in largest_requests("large", share=lambda api_key: 0.02 if api_key in SLOWLY_SERVED else 1.0):
            asked.add(request.api_key)
            assert size_of_answer(("127.0.0.1", cluster.kafka_port), request) > 0
            turns = turns_in(noted)[before:]
            before += len(turns)
            too_long += [
                (request.api_key.name, request.array, request.items, one) for one in turns if one.ms > TURN_MAX_MS
            ]
        assert not too_long
        assert asked == set(SPOKEN) - LEFT_OUT
    finally:
        cluster.stop()

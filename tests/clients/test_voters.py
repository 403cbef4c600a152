"""Tests that requests of Kafka's clients remove a voter from the quorum and add it again (KIP-853)."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from klamm_broker.kafka.api import ApiKey
from tests.clients.scenarios import TIMEOUT_MS, TIMEOUT_S
from tests.clients.version_scenarios import METADATA_TOPIC
from tests.support.kafka_wire import KafkaWire

pytestmark = pytest.mark.clients


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    """The Kafka listener of a cluster with three controllers."""
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    with (tmp_path / "up.log").open("w") as log:
        process = subprocess.Popen([*command, "--controllers", "3"], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        ready = re.search(r"Kafka clients at ([^,\s]+),", process.stdout.readline())
        assert ready, (tmp_path / "up.log").read_text()
        yield ready[1]
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        process.stdout.close()


def quorum(wire: KafkaWire) -> Any:
    answer = wire.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": [METADATA_TOPIC]})
    assert answer.error_code == ErrorCode.none
    return answer


def voter_ids(wire: KafkaWire) -> set[int]:
    return {current_voter.replica_id for current_voter in quorum(wire).topics[0].partitions[0].current_voters}


def test_a_voter_leaves_and_comes_back(bootstrap: str) -> None:
    with KafkaWire(bootstrap) as wire:
        before = quorum(wire)
        partition = before.topics[0].partitions[0]
        leaving = next(
            current_voter
            for current_voter in partition.current_voters
            if current_voter.replica_id != partition.leader_id
        )
        node = next(one for one in before.nodes if one.node_id == leaving.replica_id)
        assert len(voter_ids(wire)) == 3
        voter = {
            "cluster_id": None,
            "voter_id": leaving.replica_id,
            "voter_directory_id": leaving.replica_directory_id,
        }
        gone = wire.ask(ApiKey.REMOVE_RAFT_VOTER, 0, voter)
        assert (gone.error_code, gone.error_message) == (ErrorCode.none, None)
        assert voter_ids(wire) == {current_voter.replica_id for current_voter in partition.current_voters} - {
            leaving.replica_id
        }
        assert wire.ask(ApiKey.REMOVE_RAFT_VOTER, 0, voter).error_code == ErrorCode.voter_not_found
        listeners = [
            {"name": listener.name, "host": listener.host, "port": listener.port} for listener in node.listeners
        ]
        asked = {**voter, "timeout": TIMEOUT_MS, "listeners": listeners, "ack_when_committed": True}
        deadline_s = time.monotonic() + TIMEOUT_S
        # The leader must first know the replica as an observer that has caught up.
        while (back := wire.ask(ApiKey.ADD_RAFT_VOTER, 1, asked)).error_code == ErrorCode.request_timed_out:
            assert time.monotonic() < deadline_s, back
        assert (back.error_code, back.error_message) == (ErrorCode.none, None)
        assert len(voter_ids(wire)) == 3

"""Kafka's own Java client against the Kafka listener (`java/src/main/java/clients/Behaviours.java`)."""

from __future__ import annotations

import subprocess

import pytest

from tests.support import java_programs

TIMEOUT_S = 110

BEHAVIOURS = {
    "codecs": "produces and consumes with every codec",
    "idempotent": "produces without duplicates (idempotent)",
    "transactions": "reads, processes and writes in transactions",
    "fencing": "a newer producer fences the older one",
    "rebalance": "groups rebalance while they consume",
    "cooperative": "groups rebalance cooperatively",
    "new-protocol": "groups of the new protocol (KIP-848)",
    "static": "static members keep their partitions",
    "offsets": "offsets by time, at both ends, records deleted",
    "topics": "topics, partitions, configs",
    "groups": "groups and their offsets administered",
    "replicas": "replicas, leaders, log dirs",
    "transaction-admin": "transactions and producers described",
    "cluster": "brokers, quorum, features, users",
    "errors": "names errors as with Kafka",
}


@pytest.mark.clients
@pytest.mark.parametrize(
    "behaviour",
    [pytest.param(name, marks=pytest.mark.behaviour("Java", text), id=name) for name, text in BEHAVIOURS.items()],
)
def test_a_behaviour_holds_with_the_java_client(bootstrap: str, name: str, behaviour: str) -> None:
    command = java_programs.command("clients.Behaviours", behaviour, bootstrap, name)
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert run.stdout.endswith("holds\n"), run.stdout + run.stderr

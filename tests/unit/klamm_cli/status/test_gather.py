"""Tests that a broker that does not answer delays no other part of the status."""

from __future__ import annotations

import threading
import time
from typing import Any

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_cli.status.gather import gather
from tests.support.status_world import controller, partition, quorum, server, topic
from tests.support.waiting import patience


class Admin:
    """An Admin of a cluster whose broker 2 answers only after all other questions were asked."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._asked: set[str] = set()
        self._are_all_asked = threading.Event()

    def describe_cluster(self, timeout_ms: int) -> Any:
        return self._cluster

    def describe_quorum(self, timeout_ms: int) -> Any:
        return quorum(controller(1))

    def list_topics(self, *, include_internal: bool, timeout_ms: int) -> Any:
        return {"orders": topic("orders", partition(0))}

    def describe_log_dirs(self, broker_ids: list[int], timeout_ms: int) -> Any:
        return self._answer(broker_ids, "log directories", timeout_ms)

    def describe_scrubs(self, *, broker_ids: list[int], unrepaired_only: bool, timeout_ms: int) -> Any:
        return self._answer(broker_ids, "damage", timeout_ms)

    def describe_configs(self, resources: Any, names: Any, timeout_ms: int) -> Any:
        return self._note("configs", {})

    def list_groups(self, timeout_ms: int) -> Any:
        return self._note("groups", {})

    def list_offsets(self, timestamps: Any, timeout_ms: int) -> Any:
        return {}

    def list_transactions(self, states: Any, timeout_ms: int) -> Any:
        return self._note("transactions", {})

    def describe_transactions(self, ids: Any, timeout_ms: int) -> Any:
        return {}

    def find_hanging_transactions(self, partitions: Any, timeout_ms: int) -> Any:
        return self._note("hanging", ())

    def _answer(self, broker_ids: list[int], what: str, timeout_ms: int) -> Any:
        (broker_id,) = broker_ids
        if broker_id != 2:
            return self._note(f"{what} {broker_id}", {broker_id: ()})
        assert self._are_all_asked.wait(timeout_ms / 1000), self._asked
        raise EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT]("late")

    def _note(self, what: str, answer: Any) -> Any:
        self._asked.add(what)
        if len(self._asked) == 8:
            self._are_all_asked.set()
        return answer


def test_all_servers_are_asked_at_the_same_time(facts: Any) -> None:
    brokers = (server(1), server(2), server(3), server(4, fenced=True))
    admin: Any = Admin(facts(cluster={"brokers": brokers}).cluster)
    found = gather(admin, time.monotonic() + patience())
    assert found.unknown == {
        "log directories of broker 2": "REQUEST_TIMED_OUT: late",
        "damaged segments of broker 2": "REQUEST_TIMED_OUT: late",
    }
    assert set(found.log_dirs) == {1, 3}
    assert (found.groups, found.hanging) == ([], ())

"""Tests clients that are kept between tasks: which task gets which client, and when a client is closed."""

from __future__ import annotations

import pytest

from klamm.config import ClientConfig
from pyspark_klamm.client_cache import ClientCache


class Client:
    def __init__(self, settings) -> None:
        self.settings = settings
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clients(clock) -> ClientCache[Client]:
    return ClientCache(Client, ClientConfig, clock, capacity=2, idle_s=10.0)


def use(clients: ClientCache[Client], name: str) -> Client:
    with clients.using({"name": name}) as client:
        assert not client.closed
        return client


def test_the_next_task_with_the_same_settings_gets_the_same_client(clients):
    first = use(clients, "a")
    assert first.settings == {"name": "a"}
    assert use(clients, "b") is not first
    assert use(clients, "a") is first


def test_a_client_that_failed_is_closed_and_not_given_out_again(clients):
    with pytest.raises(KeyError), clients.using({"name": "a"}) as failed:
        raise KeyError
    assert failed.closed == 1
    assert use(clients, "a") is not failed


def test_a_client_in_use_is_not_given_to_another_task(clients):
    with clients.using({"name": "a"}) as outer, clients.using({"name": "a"}) as inner:
        assert inner is not outer


def test_idle_clients_beyond_the_limit_are_closed_the_longest_idle_first(clients):
    a, b, c = (use(clients, name) for name in "abc")
    assert [a.closed, b.closed, c.closed] == [1, 0, 0]
    assert use(clients, "c") is c


def test_a_client_that_was_idle_for_long_is_closed_when_another_is_used(clients, clock):
    old = use(clients, "a")
    clock.now_s = 10.5
    use(clients, "b")
    assert old.closed == 1


def test_a_shared_client_is_the_same_for_all_tasks_and_is_closed_when_idle(clients, clock):
    shared = clients.get({"name": "a", "other": "b"})
    assert clients.get({"other": "b", "name": "a"}) is shared
    use(clients, "b")
    assert clients.get({"name": "a", "other": "b"}) is shared
    use(clients, "c")
    assert shared.closed == 0, "b was idle for longer"
    clock.now_s = 10.5
    assert clients.get({"name": "a", "other": "b"}) is shared, "what is asked for is not idle"
    use(clients, "d")
    use(clients, "e")
    assert shared.closed == 1

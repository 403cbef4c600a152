from __future__ import annotations

from klamm_controller.io import address_book
from klamm_controller.io.address_book import AddressBook, enumerate_contacts
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import ReplicaKey, Voter
from klamm_server.net.listeners import ENCRYPTED, Listener, SecurityProtocol, plain_listeners

ONE, TWO, OBSERVER = ReplicaKey(1, "a"), ReplicaKey(2, "b"), ReplicaKey(3, "c")
(PLAIN,) = plain_listeners("localhost", 1)
VOTERS = VoterSet([Voter(ONE, "one:1"), Voter(TWO, "two:2")])


def book(*contacts: str) -> AddressBook:
    return AddressBook(contacts, lambda: VOTERS, PLAIN)


def test_an_address_from_a_replica_overrides_the_voter_set():
    made = book()
    assert [made.address(ONE), made.address(OBSERVER)] == ["one:1", ""]
    assert made.moved_voters() == []
    made.learn(ONE, "elsewhere:1")
    made.learn(TWO, "two:2")
    made.learn(OBSERVER, "three:3")
    assert [made.address(key) for key in (ONE, TWO, OBSERVER)] == ["elsewhere:1", "two:2", "three:3"]
    assert made.moved_voters() == [Voter(ONE, "elsewhere:1")]


def test_an_address_of_another_directory_id_does_not_change_the_voters_address():
    made = book()
    made.learn(ReplicaKey(1, "new"), "new:1")
    assert made.address(ONE) == "one:1"
    assert made.moved_voters() == []


def test_bootstrap_contacts_have_negative_ids():
    made = book("x:1", "y:2")
    ids = enumerate_contacts(["x:1", "y:2"])
    assert all(node_id < 0 for node_id, _ in ids)
    assert [made.address(ReplicaKey(node_id, "")) for node_id, _ in ids] == ["x:1", "y:2"]
    assert made.address(ReplicaKey(-99, "")) == ""


def test_the_address_book_is_bounded_and_drops_the_least_recently_heard(monkeypatch):
    monkeypatch.setattr(address_book, "ADDRESSES_MAX", 2)
    made = book()
    for key in (OBSERVER, ONE, OBSERVER, TWO):
        made.learn(key, f"h{key.node_id}:1")
    assert [made.address(key) for key in (OBSERVER, ONE, TWO)] == ["h3:1", "one:1", "h2:1"]


def test_clients_get_the_listeners_of_a_replica_or_else_its_server_address():
    made = book()
    assert made.listeners("one:1") == plain_listeners("one", 1)
    told = (Listener("GRPC_HOST", SecurityProtocol.GRPC, "localhost", 9097),)
    made.learn(ONE, "one:1", told)
    made.learn(ONE, "one:1")
    assert made.listeners("one:1") == told, "who says nothing of it takes nothing back"


def test_a_controller_is_dialled_at_its_listener_with_this_controllers_listener_name():
    made = AddressBook([], lambda: VOTERS, Listener("INTERNAL", SecurityProtocol.GRPC, "me", 1, ENCRYPTED))
    assert [made.dialled(ONE), made.dialled(OBSERVER)] == ["one:1", ""], "nothing was said of listeners"
    inside = Listener("INTERNAL", SecurityProtocol.GRPC, "one", 9, ENCRYPTED)
    made.learn(ONE, "one:1", (*plain_listeners("one", 1), inside))
    assert made.dialled(ONE) == "one:9"
    assert made.address(ONE) == "one:1", "the quorum knows it as it knows itself"
    assert made.moved_voters() == []


def test_listeners_that_no_replica_reported_are_not_passed_on():
    assert book().announced_listeners("one:1") == ()

from __future__ import annotations

from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import ControllerListeners
from klamm_server.net.listeners import ENCRYPTED, Listener, SecurityProtocol, encode, plain_listeners
from klamm_server.rpc.controllers import Controllers

A = Endpoint(host="a", port=1)
ONE, TWO, THREE, FOUR = (("a", 1), ("b", 2), ("c", 3), ("d", 4))


def test_at_first_only_the_configured_controllers_are_known():
    known = Controllers([ONE, TWO])
    assert known.current == known.to_try == (ONE, TWO)
    known.learn([])
    assert known.current == (ONE, TWO)


def test_controllers_that_the_cluster_named_are_tried_before_the_configured_ones():
    known = Controllers([ONE, TWO])
    known.learn([Endpoint(host="b", port=2), Endpoint(host="c", port=3)])
    assert known.current == (TWO, THREE)
    assert known.to_try == (TWO, THREE, ONE)
    known.learn([Endpoint(host="d", port=4)])
    assert (known.current, known.to_try) == ((FOUR,), (FOUR, ONE, TWO))


def test_controllers_are_tried_in_turn():
    known = Controllers([ONE, TWO])
    assert [known.following(ONE), known.following(TWO), known.following(FOUR)] == [TWO, ONE, ONE]


def test_a_server_dials_the_controllers_listener_with_its_own_listeners_name():
    inside = Listener("INTERNAL", SecurityProtocol.GRPC, "a", 9, ENCRYPTED)
    told = [ControllerListeners(controller=A, listeners=encode([*plain_listeners("a", 1), inside]))]
    for own, expected in ((inside, ("a", 9)), (plain_listeners("me", 5)[0], ONE), (None, ONE)):
        known = Controllers([TWO], own)
        known.learn([A, Endpoint(host="c", port=3)], told)
        assert known.current == (expected, THREE), "of the other one nothing was said"
        assert known.listeners(expected) == (*plain_listeners("a", 1), inside)

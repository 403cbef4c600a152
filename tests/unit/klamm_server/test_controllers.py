from __future__ import annotations

from klamm.wire.v1.common_pb2 import Endpoint
from klamm_server.controllers import Controllers

ONE, TWO, THREE, FOUR = (("a", 1), ("b", 2), ("c", 3), ("d", 4))


def test_the_configured_ones_are_all_there_is_at_first():
    known = Controllers([ONE, TWO])
    assert known.current == known.to_try == (ONE, TWO)
    known.learn([])
    assert known.current == (ONE, TWO)


def test_those_that_the_cluster_named_come_first_and_the_configured_ones_stay():
    known = Controllers([ONE, TWO])
    known.learn([Endpoint(host="b", port=2), Endpoint(host="c", port=3)])
    assert known.current == (TWO, THREE)
    assert known.to_try == (TWO, THREE, ONE)
    known.learn([Endpoint(host="d", port=4)])
    assert (known.current, known.to_try) == ((FOUR,), (FOUR, ONE, TWO))


def test_everybody_is_tried_in_turn_whoever_was_asked_last():
    known = Controllers([ONE, TWO])
    assert [known.following(ONE), known.following(TWO), known.following(FOUR)] == [TWO, ONE, ONE]

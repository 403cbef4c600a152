from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_controller.metadata.sessions import Sessions


def test_a_session_expires_once_at_its_deadline():
    sessions = Sessions(100)
    sessions.touch(1, 0)
    assert sessions.next_deadline_ms() == 100
    assert sessions.expire(99) == []
    assert sessions.is_live(1, 99)
    assert not sessions.is_live(1, 100)
    assert sessions.expire(100) == [1]
    assert sessions.expire(10_000) == []
    assert sessions.next_deadline_ms() is None


def test_a_touch_moves_the_session_deadline():
    sessions = Sessions(100)
    sessions.touch(1, 0)
    sessions.touch(1, 60)
    assert sessions.expire(100) == []
    assert sessions.next_deadline_ms() == 160
    assert sessions.expire(160) == [1]


def test_renew_extends_all_sessions_and_remove_ends_one():
    sessions = Sessions(100)
    sessions.touch(1, 0)
    sessions.touch(2, 0)
    sessions.remove(1)
    sessions.renew(5_000)
    assert sessions.expire(5_000) == []
    assert not sessions.is_live(1, 0)
    assert sessions.expire(5_100) == [2]


@given(
    st.lists(
        st.tuples(st.sampled_from(["touch", "remove", "expire", "renew"]), st.integers(0, 4), st.integers(0, 60)),
        max_size=60,
    )
)
def test_random_session_steps_match_a_dict_of_deadlines(steps):
    sessions, naive, now = Sessions(50), {}, 0
    for what, node, wait in steps:
        now += wait
        if what == "touch":
            sessions.touch(node, now)
            naive[node] = now + 50
        elif what == "remove":
            sessions.remove(node)
            naive.pop(node, None)
        elif what == "renew":
            sessions.renew(now)
            naive = dict.fromkeys(naive, now + 50)
        else:
            due = {node for node, deadline in naive.items() if deadline <= now}
            assert set(sessions.expire(now)) == due
            naive = {node: deadline for node, deadline in naive.items() if node not in due}
        sessions.check_invariants()
        assert [sessions.is_live(n, now) for n in range(5)] == [naive.get(n, 0) > now for n in range(5)]
        if naive:
            assert sessions.next_deadline_ms() <= min(naive.values())

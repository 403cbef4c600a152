import itertools

from klamm_server.runtime.restart_backoff import PAUSE_MAX_S, PAUSE_MIN_S, STEADY_S, RestartBackoff


def test_the_restart_pause_of_a_failing_process_doubles_up_to_a_limit():
    backoff = RestartBackoff()
    pauses_s = [backoff.pause_s(ran_s=0.1) for _ in range(8)]
    assert pauses_s[0] == PAUSE_MIN_S
    assert all(later_s == min(2 * earlier_s, PAUSE_MAX_S) for earlier_s, later_s in itertools.pairwise(pauses_s))
    assert pauses_s[-1] == PAUSE_MAX_S


def test_a_process_that_stayed_up_is_restarted_after_the_shortest_pause():
    backoff = RestartBackoff()
    for _ in range(4):
        backoff.pause_s(ran_s=0.1)
    assert backoff.pause_s(ran_s=STEADY_S) == PAUSE_MIN_S
    assert backoff.pause_s(ran_s=0.1) == 2 * PAUSE_MIN_S

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_server.security.quotas.token_bucket import TokenBucket

STEPS = st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 50)), max_size=40)
"""The steps of a run. Each has the milliseconds since the step before, and the number of tokens that it takes."""


@given(rate=st.floats(0.1, 100), burst_s=st.floats(1, 20), steps=STEPS)
def test_a_request_is_allowed_while_the_bucket_has_tokens(
    rate: float, burst_s: float, steps: list[tuple[int, int]]
) -> None:
    """The model is Kafka's. Tokens come at the rate until the bucket has the burst, and may become negative."""
    bucket, now_ms, tokens = TokenBucket(0), 0, rate * burst_s
    for later_ms, amount in steps:
        now_ms += later_ms
        tokens = min(rate * burst_s, tokens + rate * later_ms / 1000)
        rest_ms = bucket.throttle_ms(rate, burst_s, now_ms)
        assert rest_ms == pytest.approx(max(0.0, -tokens / rate * 1000), rel=1e-6, abs=0.51)
        if not rest_ms:
            bucket.take(amount, rate, burst_s, now_ms)
            tokens -= amount


def test_a_client_is_allowed_again_after_its_throttle_time() -> None:
    bucket = TokenBucket(7)
    bucket.take(12, 1.0, 11.0, 7)
    assert bucket.throttle_ms(1.0, 11.0, 7) == 1_000
    assert bucket.throttle_ms(1.0, 11.0, 1_006) > 0
    assert bucket.throttle_ms(1.0, 11.0, 1_007) == 0


def test_a_changed_rate_applies_to_tokens_that_are_owed() -> None:
    bucket = TokenBucket(0)
    bucket.take(21, 1.0, 11.0, 0)
    assert bucket.throttle_ms(1.0, 11.0, 0) == 10_000
    assert bucket.throttle_ms(10.0, 11.0, 0) == 1_000

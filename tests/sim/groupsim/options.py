"""The values that a seed draws first: the size of the world, and its faults. Not every run has all faults."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.sim.kit.options import DrawnOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(DrawnOptions):
    """The options of a simulation. Each fault is the probability, from 0 to 1, that it strikes at one event."""

    client_count: int
    static_count: int
    step_count: int
    request_loss: float
    reply_loss: float
    write_failure: float
    slow_log: float
    """The probability that the outcome of a write is delayed."""
    failover: float
    restart: float
    leave: float
    resubscribe: float
    topics_change: float
    slow_revocation: float
    duplicate_join: float
    silence: float
    """The probability that time passes without a heartbeat from any client."""

    @classmethod
    def draw(cls, rng: random.Random) -> Options:
        def fault(chance: float) -> float:
            return chance if rng.random() < 0.6 else 0.0

        client_count = rng.randint(2, 6)
        return cls(
            client_count=client_count,
            static_count=rng.randint(0, client_count),
            step_count=400,
            request_loss=fault(0.05),
            reply_loss=fault(0.05),
            write_failure=fault(0.1),
            slow_log=fault(0.6),
            failover=fault(0.02),
            restart=fault(0.02),
            leave=fault(0.03),
            resubscribe=fault(0.03),
            topics_change=fault(0.03),
            slow_revocation=fault(0.7),
            duplicate_join=fault(0.05),
            silence=fault(0.02),
        )

"""A slice of the simulated partition and every planted bug."""

from __future__ import annotations

import dataclasses
import random
from collections import deque

from tests.sim.isrsim.model import ISR
from tests.sim.isrsim.network import Network
from tests.sim.isrsim.options import Options
from tests.sim.isrsim.run import Outcome as IsrOutcome
from tests.sim.isrsim.run import run_seed
from tests.sim.isrsim.sim_log import SimLog, SimLogConfig, encode
from tests.sim.kit.model_tests import ModelTests
from tests.sim.kit.runner import Outcome
from tests.sim.kit.world import MS, World

LATE_REGISTRATION = 2_320
"""A broker's registration arrives when its next life is registered already."""


class TestIsr(ModelTests):
    model = ISR
    slice_seeds = 16

    def check_outcome(self, outcome: Outcome) -> None:
        assert isinstance(outcome, IsrOutcome)
        assert outcome.acknowledged_count > 0
        assert outcome.committed_count >= outcome.acknowledged_count


def test_a_broker_whose_registration_was_replaced_registers_again() -> None:
    trace: deque[str] = deque()
    drawn = Options.draw(random.Random(LATE_REGISTRATION))
    run_seed(LATE_REGISTRATION, trace, dataclasses.replace(drawn, full_disk_mean_ms=0))
    assert any("is not registered any more" in line for line in trace)


def test_swarm_options_differ_between_seeds() -> None:
    drawn = [Options.draw(random.Random(seed)) for seed in range(100)]
    assert {options.crash_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.partition_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.reassignment_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.full_disk_mean_ms > 0 for options in drawn} == {True, False}
    assert {options.partitions_per_turn for options in drawn} == {0, 1, 2}
    assert {options.replica_count for options in drawn} == {2, 3, 4, 5}


def test_the_chains_of_two_logs_differ_from_their_first_different_record() -> None:
    one, other = SimLog(SimLogConfig(1)), SimLog(SimLogConfig(1))
    for log, last in ((one, 3), (other, 4)):
        log.append_as_follower(encode([(0, 9, 0, 1), (0, 9, 1, 2), (1, 9, 2, last)]), leader_epoch=9, now_ms=0)
    assert one.chain_at(2) == other.chain_at(2)
    assert one.chain_at(3) != other.chain_at(3)
    other.truncate_to(2, now_ms=0)
    other.append_as_follower(encode([(1, 9, 2, 3)]), leader_epoch=9, now_ms=0)
    assert one.chain_at(3) == other.chain_at(3)


def test_a_network_channel_delivers_in_order_and_ends_at_the_first_lost_message() -> None:
    world = World(seed=1)
    network = Network(world, Options.draw(random.Random(1)))
    network.is_faulty = False
    channel, arrived = network.channel(1, 2), []
    for number in range(20):
        channel.send(arrived.append, number)
    world.run_until(world.now_us + 1_000 * MS)
    assert arrived == list(range(20))
    network.cut.add((1, 2))
    channel.send(arrived.append, 20)
    network.cut.clear()
    channel.send(arrived.append, 21)
    world.run_until(world.now_us + 1_000 * MS)
    assert arrived == list(range(20))

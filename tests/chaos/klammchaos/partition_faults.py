"""The faults of partitions: each strikes, holds for a while, and heals what it struck."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from typing import Final

from tests.chaos.klammchaos.means import Means
from tests.chaos.klammchaos.network import CLIENTS, Link
from tests.chaos.klammchaos.partition_cluster import BROKERS, CONTROLLERS
from tests.chaos.klammchaos.partition_damage import flip_bytes
from tests.chaos.klammchaos.partition_moves import (
    cancel_move,
    elect_leaders,
    move_replicas,
    move_to_full_disk,
    move_while_killing,
)
from tests.chaos.klammchaos.partition_strike import (
    EXCEPT_BYTES_MAX,
    GO_ON_S,
    HOLD_S,
    LONG_HOLD_S,
    Act,
    PartitionFault,
    PartitionStrike,
    Victims,
    controller,
    every_broker,
    follower,
    leader,
    two_brokers,
)


def _kill(victims: Victims, for_s: tuple[float, float] = HOLD_S) -> Act:
    async def act(strike: PartitionStrike) -> None:
        killed = victims(strike)
        await asyncio.to_thread(strike.cluster.kill, killed)
        await strike.hold(for_s)
        strike.cluster.restart(killed)

    return act


def _replace_disk(victims: Victims) -> Act:
    """Returns an act that replaces the disks of killed brokers by empty ones. A restarted broker must lead no partition
    until it has all records from the others. At most one replica is lost at a time."""

    async def act(strike: PartitionStrike) -> None:
        await strike.cluster.wait_whole()
        killed = victims(strike)
        await asyncio.to_thread(strike.cluster.kill, killed)
        for broker in killed:
            for path in strike.cluster.log_dir(broker).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        await asyncio.sleep(strike.rng.uniform(0, 1))
        strike.cluster.restart(killed)
        await strike.cluster.wait_whole()

    return act


async def _stop_leader(strike: PartitionStrike) -> None:
    await asyncio.to_thread(strike.cluster.stop, strike.leader)
    strike.cluster.restart([strike.leader])


async def _roll(strike: PartitionStrike) -> None:
    """Restarts all brokers, one after the other."""
    for broker in (strike.leader, *strike.others):
        await asyncio.to_thread(strike.cluster.stop, broker)
        strike.cluster.restart([broker])
        await strike.cluster.wait_whole()


def _freeze(victims: Victims, for_s: tuple[float, float] = HOLD_S) -> Act:
    async def act(strike: PartitionStrike) -> None:
        with strike.cluster.frozen(victims(strike)):
            await strike.hold(for_s)

    return act


def _cut(links: Callable[[PartitionStrike], list[Link]], for_s: tuple[float, float] = HOLD_S) -> Act:
    async def act(strike: PartitionStrike) -> None:
        with strike.cluster.surroundings.cut(links(strike)):
            await strike.hold(for_s)

    return act


def _fill(victims: Victims) -> Act:
    async def act(strike: PartitionStrike) -> None:
        with strike.cluster.surroundings.full(victims(strike), strike.rng.randrange(EXCEPT_BYTES_MAX)):
            await strike.hold()

    return act


def _fill_one(victims: Victims) -> Act:
    """Returns an act that fills the disk of one broker while all brokers are in sync. The others must take over long
    before the disk has space again."""

    async def act(strike: PartitionStrike) -> None:
        await strike.cluster.wait_whole()
        with strike.cluster.surroundings.full(victims(strike), strike.rng.randrange(EXCEPT_BYTES_MAX)):
            await strike.hold(LONG_HOLD_S)

    return act


async def _fill_and_kill_leader(strike: PartitionStrike) -> None:
    """Fills the leader's disk and kills the leader. The leader may refuse to start without space. With space, it must
    have its old state again."""
    killed = [strike.leader]
    with strike.cluster.surroundings.full(killed, strike.rng.randrange(EXCEPT_BYTES_MAX)):
        await asyncio.sleep(strike.rng.uniform(0, 0.5))
        await asyncio.to_thread(strike.cluster.kill, killed)
        strike.cluster.restart(killed)
        await strike.hold()
    strike.cluster.restart(killed)


def _between(ones: Sequence[int], others: Sequence[int]) -> list[Link]:
    return [link for one in ones for other in others for link in ((one, other), (other, one))]


def _followers(strike: PartitionStrike) -> list[Link]:
    return _between([strike.leader], strike.others)


def _from_leader(strike: PartitionStrike) -> list[Link]:
    """Cuts the links from the leader to its followers. The leader still receives their messages."""
    return [(strike.leader, other) for other in strike.others]


def _to_leader(strike: PartitionStrike) -> list[Link]:
    return [(other, strike.leader) for other in strike.others]


def _one_follower(strike: PartitionStrike) -> list[Link]:
    return _between([strike.leader], strike.others[:1])


def _to_clients(strike: PartitionStrike) -> list[Link]:
    """Cuts the way from the leader to clients. The leader carries out their requests, but they get no answers and
    retry."""
    return [(strike.leader, CLIENTS)]


def _controllers(strike: PartitionStrike) -> list[Link]:
    return _between([strike.leader], CONTROLLERS)


def _everybody(strike: PartitionStrike) -> list[Link]:
    """Cuts the links between the leader and all other servers. Clients still reach the leader."""
    return _followers(strike) + _controllers(strike)


def _any_links(strike: PartitionStrike) -> list[Link]:
    nodes = [*CONTROLLERS, *BROKERS]
    links = [(node, other) for node in nodes for other in nodes if node != other]
    return strike.rng.sample(links, strike.rng.randint(1, len(links) // 2))


async def _nothing(strike: PartitionStrike) -> None:
    await strike.hold()


PARTITION_FAULTS: Final[Sequence[PartitionFault]] = (
    PartitionFault(name="nothing", weight=1, strike=_nothing),
    PartitionFault(name="kill -9 leader", weight=3, strike=_kill(leader), fails_over=True),
    PartitionFault(
        name="kill -9 leader for long",
        weight=1,
        strike=_kill(leader, LONG_HOLD_S),
        fails_over=True,
        needs=Means.ABSENCE,
    ),
    PartitionFault(name="kill -9 follower", weight=1, strike=_kill(follower)),
    PartitionFault(name="kill -9 two brokers", weight=1, strike=_kill(two_brokers)),
    PartitionFault(name="kill -9 all brokers", weight=1, strike=_kill(every_broker)),
    PartitionFault(name="kill -9 controller", weight=1, strike=_kill(controller)),
    PartitionFault(
        name="kill -9 leader, new disk", weight=1, strike=_replace_disk(leader), fails_over=True, needs=Means.ABSENCE
    ),
    PartitionFault(name="kill -9 follower, new disk", weight=1, strike=_replace_disk(follower), needs=Means.ABSENCE),
    PartitionFault(name="SIGTERM leader", weight=2, strike=_stop_leader),
    PartitionFault(name="rolling restart", weight=1, strike=_roll),
    PartitionFault(name="SIGSTOP leader", weight=2, strike=_freeze(leader)),
    PartitionFault(name="SIGSTOP leader for long", weight=2, strike=_freeze(leader, LONG_HOLD_S)),
    PartitionFault(name="SIGSTOP follower", weight=1, strike=_freeze(follower)),
    PartitionFault(name="SIGSTOP two brokers", weight=1, strike=_freeze(two_brokers)),
    PartitionFault(name="SIGSTOP controller", weight=1, strike=_freeze(controller)),
    PartitionFault(name="move replicas", weight=2, strike=move_replicas),
    PartitionFault(name="move replicas, kill -9 leader", weight=1, strike=move_while_killing(leader)),
    PartitionFault(name="move replicas, kill -9 controller", weight=1, strike=move_while_killing(controller)),
    PartitionFault(name="move replicas to a full disk", weight=1, strike=move_to_full_disk, needs=Means.DISKS),
    PartitionFault(name="cancel a move", weight=1, strike=cancel_move),
    PartitionFault(name="elect leaders", weight=1, strike=elect_leaders),
    PartitionFault(name="flip bytes leader", weight=1, strike=flip_bytes(leader)),
    PartitionFault(name="flip bytes follower", weight=1, strike=flip_bytes(follower)),
    PartitionFault(name="full disk leader", weight=1, strike=_fill(leader), needs=Means.DISKS),
    PartitionFault(name="full disk follower", weight=1, strike=_fill(follower), needs=Means.DISKS),
    PartitionFault(
        name="full disk leader for long",
        weight=1,
        strike=_fill_one(leader),
        needs=Means.DISKS,
        outage_max_s=GO_ON_S,
    ),
    PartitionFault(
        name="full disk follower for long",
        weight=1,
        strike=_fill_one(follower),
        needs=Means.DISKS,
        outage_max_s=GO_ON_S,
    ),
    PartitionFault(name="full disk all brokers", weight=1, strike=_fill(every_broker), needs=Means.DISKS),
    PartitionFault(name="full disk, kill -9 leader", weight=1, strike=_fill_and_kill_leader, needs=Means.DISKS),
    PartitionFault(name="cut leader from followers", weight=1, strike=_cut(_followers), needs=Means.CABLES),
    PartitionFault(name="cut from leader", weight=1, strike=_cut(_from_leader), needs=Means.CABLES),
    PartitionFault(name="cut to leader", weight=1, strike=_cut(_to_leader), needs=Means.CABLES),
    PartitionFault(name="cut leader from a follower", weight=1, strike=_cut(_one_follower), needs=Means.CABLES),
    PartitionFault(
        name="cut leader's answers for long", weight=1, strike=_cut(_to_clients, LONG_HOLD_S), needs=Means.CABLES
    ),
    PartitionFault(
        name="cut leader from controllers for long",
        weight=2,
        strike=_cut(_controllers, LONG_HOLD_S),
        needs=Means.CABLES,
    ),
    PartitionFault(name="cut leader off for long", weight=2, strike=_cut(_everybody, LONG_HOLD_S), needs=Means.CABLES),
    PartitionFault(name="cut any links", weight=2, strike=_cut(_any_links), needs=Means.CABLES),
)

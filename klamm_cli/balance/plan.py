"""Plans which leaders and replicas move, so that brokers have equal load. Pure and deterministic.

1. A replica that shares a host with another one of its partition moves, if there is another host. So does one that
   could be in a larger domain of its own.
2. While a broker's load differs from the mean by more than the tolerance, the planner takes the step that gains most
   for the bytes that it copies. A step makes another replica the leader, which copies nothing, or moves one replica.

The gain of a step is the decrease of the sum of squared deviations from the mean, over all brokers and the three parts
of the load. A step must not raise the worst deviation, or put replicas of a partition into fewer domains. The planner
ends when no step gains, so a plan from the planned state is empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from klamm.failure_domains import level_names
from klamm.model import TopicPartition
from klamm_cli.balance.load import NO_LOAD, PARTS, Floors, Load, PartitionLoad, Replicas, plus

TOLERANCE: Final = 0.1
"""A broker is balanced if its load differs from the mean by at most this share of the mean."""
_GAIN_MIN: Final = 1e-4
_CANDIDATES: Final = 8
"""The number of brokers at the other end of the scale that the planner tries for each unbalanced broker."""
_STEP_SHARE: Final = 0.1
"""A step costs this share of the mean size of a partition in addition to its bytes, so that few steps are preferred."""
_MIB: Final = 1024 * 1024

Partitions = Mapping[TopicPartition, PartitionLoad]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancePlan:
    """The replicas that partitions get, and the bytes that are copied for it."""

    moves: Mapping[TopicPartition, Replicas]
    copied_bytes: int

    def after(self, partitions: Partitions) -> dict[TopicPartition, PartitionLoad]:
        """Returns the partitions as they are after the plan."""
        return {
            tp: replace(partition, replicas=self.moves.get(tp, partition.replicas))
            for tp, partition in partitions.items()
        }


def plan_balance(
    partitions: Partitions, racks: Mapping[int, str], *, targets: Collection[int], tolerance: float = TOLERANCE
) -> BalancePlan:
    """Returns the plan that balances the load over the brokers `targets`. `racks` has the failure domain of each
    broker. Replicas on other brokers stay there."""
    planned = dict(sorted(partitions.items()))
    while targets and (steps := _Planner(planned, racks, targets, tolerance).run()):
        # The sums of a new planner have no rounding errors of the steps before. So the last planner sees what the next
        # plan will see.
        planned = {
            tp: replace(partition, replicas=steps.get(tp, partition.replicas)) for tp, partition in planned.items()
        }
    moves = {
        tp: partition.replicas for tp, partition in planned.items() if partition.replicas != partitions[tp].replicas
    }
    copied = sum(
        partitions[tp].size_bytes * len(set(replicas) - set(partitions[tp].replicas)) for tp, replicas in moves.items()
    )
    return BalancePlan(moves=moves, copied_bytes=copied)


def deviation(partitions: Partitions, targets: Collection[int]) -> float:
    """Returns the sum of squared deviations that the planner decreases."""
    return sum(gap * gap for row in _Loads(partitions, targets).deviations.values() for gap in row)


def worst_deviation(partitions: Partitions, targets: Collection[int]) -> float:
    """Returns the largest deviation of a broker from the mean, as a share of the mean."""
    return _Loads(partitions, targets).worst()


def domain_counts(replicas: Collection[int], racks: Mapping[int, str]) -> tuple[int, ...]:
    """Returns the number of hosts of the replicas, and the number of domains of each level, the largest first."""
    paths = [racks.get(replica, "") for replica in replicas]
    names = [level_names(path) for path in paths]
    deepest = max(map(len, names), default=0)
    return len(set(paths)), *(len({tuple(name[: level + 1]) for name in names}) for level in range(deepest))


Shares = tuple[float, float, float]
"""A load whose parts are shares of the means of all brokers."""


class _Step(NamedTuple):
    """One replica or leadership that goes from one broker to another."""

    tp: TopicPartition
    source: int
    target: int
    shares: Shares
    copied_bytes: int


class _Loads:
    """The loads of the target brokers, and their deviations from the mean as shares of the mean."""

    def __init__(self, partitions: Partitions, targets: Collection[int]) -> None:
        floors = Floors(partitions.values())
        sums = dict.fromkeys(sorted(targets), NO_LOAD)
        self.leading: dict[TopicPartition, Shares] = {}
        self.following: dict[TopicPartition, Shares] = {}
        leading = {tp: floors.of_leader(partition) for tp, partition in partitions.items()}
        following = {tp: floors.of_follower(partition) for tp, partition in partitions.items()}
        for tp, partition in partitions.items():
            for index, broker_id in enumerate(partition.replicas):
                if broker_id in sums:
                    sums[broker_id] = plus(sums[broker_id], following[tp] if index else leading[tp])
        count = max(1, len(sums))
        means = [sum(load[part] for load in sums.values()) / count for part in PARTS]

        def shares(load: Load) -> Shares:
            appended, sent, stored = (load[part] / means[part] if means[part] else 0.0 for part in PARTS)
            return appended, sent, stored

        self.deviations: dict[int, Shares] = {}
        for broker_id, load in sums.items():
            appended, sent, stored = (
                share - 1.0 if mean else 0.0 for share, mean in zip(shares(load), means, strict=True)
            )
            self.deviations[broker_id] = appended, sent, stored
        self.leading = {tp: shares(load) for tp, load in leading.items()}
        self.following = {tp: shares(load) for tp, load in following.items()}

    def worst(self) -> float:
        return max((abs(gap) for row in self.deviations.values() for gap in row), default=0.0)

    def gain(self, source: int, target: int, shares: Shares) -> float:
        """Returns by how much the sum of squared deviations decreases if the shares go from one broker to another."""
        (a, b, c), (d, e, f), (x, y, z) = self.deviations[source], self.deviations[target], shares
        return 2 * (x * (a - d - x) + y * (b - e - y) + z * (c - f - z))

    def worst_after(self, source: int, target: int, shares: Shares) -> float:
        """Returns the larger deviation of the two brokers after the shares went from one to the other."""
        (a, b, c), (d, e, f), (x, y, z) = self.deviations[source], self.deviations[target], shares
        return max(abs(a - x), abs(b - y), abs(c - z), abs(d + x), abs(e + y), abs(f + z))

    def apply(self, step: _Step) -> None:
        (a, b, c), (d, e, f) = self.deviations[step.source], self.deviations[step.target]
        x, y, z = step.shares
        self.deviations[step.source] = a - x, b - y, c - z
        self.deviations[step.target] = d + x, e + y, f + z


class _Planner:
    """Takes steps until none gains."""

    def __init__(
        self, partitions: Partitions, racks: Mapping[int, str], targets: Collection[int], tolerance: float
    ) -> None:
        self._partitions = partitions
        self._replicas = {tp: partition.replicas for tp, partition in partitions.items()}
        self._racks = racks
        self._targets = sorted(targets)
        self._tolerance = tolerance
        self._loads = _Loads(partitions, targets)
        mean_bytes = sum(partition.size_bytes for partition in partitions.values()) / max(1, len(partitions))
        self._step_bytes = _MIB + _STEP_SHARE * mean_bytes
        self._without_step: set[tuple[int, int]] = set()
        """The unbalanced loads for which the last search found no step. Other brokers have changed since then."""
        self._hosted: dict[int, dict[TopicPartition, None]] = defaultdict(dict)
        for tp, replicas in self._replicas.items():
            for broker_id in replicas:
                self._hosted[broker_id][tp] = None

    def run(self) -> dict[TopicPartition, Replicas]:
        """Returns the new replicas of the partitions that change."""
        for tp in self._partitions:
            while (step := self._best_repair(tp)) is not None:
                self._apply(step)
        while (step := self._next_step()) is not None:
            self._apply(step)
        return {tp: own for tp, own in self._replicas.items() if own != self._partitions[tp].replicas}

    def _apply(self, step: _Step) -> None:
        self._loads.apply(step)
        self._replicas[step.tp] = self._after(step)
        if step.source not in self._replicas[step.tp]:
            del self._hosted[step.source][step.tp]
        self._hosted[step.target][step.tp] = None
        self._without_step -= {(broker_id, part) for broker_id in (step.source, step.target) for part in PARTS}

    def _after(self, step: _Step) -> Replicas:
        """Returns the partition's replicas after the step. If both brokers have one, they change places."""
        places = {step.source: step.target, step.target: step.source}
        return tuple(places.get(replica, replica) for replica in self._replicas[step.tp])

    # Failure domains

    def _best_repair(self, tp: TopicPartition) -> _Step | None:
        """Returns the move after which the replicas are in the most domains, and the loads deviate least. Returns None
        if no move puts them into more domains."""
        now = domain_counts(self._replicas[tp], self._racks)
        best, best_rank = None, (now, 0.0)
        for source in self._replicas[tp]:
            for target in self._targets:
                step = self._step(tp, source, target)
                if step is None or target in self._replicas[tp]:
                    continue
                counts = domain_counts(self._after(step), self._racks)
                rank = (counts, self._loads.gain(source, target, step.shares))
                if counts > now and rank > best_rank:
                    best, best_rank = step, rank
        return best

    # Load

    def _next_step(self) -> _Step | None:
        unbalanced = self._unbalanced()
        fresh = [pair for pair in unbalanced if pair not in self._without_step]
        # The others are searched again only when nothing else is left, because a search takes long.
        for pair in (*fresh, *unbalanced):
            step = self._best_step(*pair)
            if step is not None:
                return step
            self._without_step.add(pair)
        return None

    def _unbalanced(self) -> list[tuple[int, int]]:
        """Returns the brokers and the parts of their load that deviate too much, the worst first."""
        found = [
            (-abs(gap), broker_id, part)
            for broker_id, row in self._loads.deviations.items()
            for part, gap in enumerate(row)
            if abs(gap) > self._tolerance
        ]
        return [(broker_id, part) for _, broker_id, part in sorted(found)]

    def _best_step(self, broker_id: int, part: int) -> _Step | None:
        """Returns the step that gains most for its bytes, of those that may bring that part of the broker's load closer
        to the mean. Returns None if no step gains."""
        worst = max(self._loads.worst(), self._tolerance)
        best, best_score = None, 0.0
        for source, target in self._pairs(broker_id, part):
            for tp in self._hosted[source]:
                step = self._step(tp, source, target)
                if step is None:
                    continue
                gain = self._loads.gain(source, target, step.shares)
                score = gain / (step.copied_bytes + self._step_bytes)
                if (
                    gain > _GAIN_MIN
                    and score > best_score
                    and self._loads.worst_after(source, target, step.shares) <= worst
                    and self._preserves_domains(step)
                ):
                    best, best_score = step, score
        return best

    def _pairs(self, broker_id: int, part: int) -> list[tuple[int, int]]:
        """Returns the sources and targets of steps that bring that part of the broker's load closer to the mean."""
        deviations = self._loads.deviations
        others = sorted(
            (target for target in self._targets if target != broker_id), key=lambda at: (deviations[at][part], at)
        )
        if deviations[broker_id][part] > 0:
            return [(broker_id, other) for other in others[:_CANDIDATES]]
        return [(other, broker_id) for other in reversed(others[-_CANDIDATES:])]

    def _step(self, tp: TopicPartition, source: int, target: int) -> _Step | None:
        """Returns the move of a partition's replica, or of its leadership if both brokers have a replica. Returns None
        if there is nothing to move."""
        replicas, loads = self._replicas[tp], self._loads
        leads = source == replicas[0]
        if target in replicas:
            if not leads:
                return None
            (a, b, c), (d, e, f) = loads.leading[tp], loads.following[tp]
            return _Step(tp, source, target, (a - d, b - e, c - f), 0)
        if source not in loads.deviations:
            return None
        partition = self._partitions[tp]
        copied = 0 if target in partition.replicas else partition.size_bytes
        return _Step(tp, source, target, (loads.leading if leads else loads.following)[tp], copied)

    def _preserves_domains(self, step: _Step) -> bool:
        before = self._replicas[step.tp]
        if step.target in before or self._racks.get(step.source) == self._racks.get(step.target):
            return True
        return domain_counts(self._after(step), self._racks) >= domain_counts(before, self._racks)

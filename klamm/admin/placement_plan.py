"""Plans which brokers replicas move to, when they leave some brokers or when a topic's replication factor changes.

The plan moves as few replicas as possible. A replica moves to a broker that has no replica of its partition yet. A
broker on a host without such a replica comes first, then one in a failure domain with the fewest of them, the largest
domain first. Then the broker with the fewest leaders (for a first replica) and the fewest replicas comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from klamm.errors import ErrorCode
from klamm.failure_domains import crowding
from klamm.model import TopicPartition

ReplicaIds = tuple[int, ...]


def plan_reassignment(
    partitions: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str],
    *,
    targets: Collection[int],
    stay: Collection[int],
    replication_factor: int | None = None,
    moving: Collection[TopicPartition] | None = None,
) -> dict[TopicPartition, ReplicaIds]:
    """Returns the new replicas of each partition that has to change, the preferred leader first.

    `partitions` are those of the whole cluster, or all that count for the balance. Only partitions in `moving` may
    change; None allows all. `racks` has the racks of all brokers. Replicas on brokers in `stay` need not move; other
    replicas move to brokers in `targets`. Raises InvalidReplicationFactorError if there are too few targets."""
    planner = _Planner(partitions, racks, sorted(targets), frozenset(stay))
    return planner.plan(sorted(partitions if moving is None else moving), replication_factor)


class _Planner:
    """Counts the replicas and leaders of each broker, and places one partition after the other."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Sequence[int]],
        racks: Mapping[int, str],
        targets: Sequence[int],
        stay: Collection[int],
    ) -> None:
        self._partitions = partitions
        self._racks = racks
        self._targets = targets
        self._stay = stay
        self._hosted = Counter(broker_id for replicas in partitions.values() for broker_id in replicas)
        self._led = Counter(replicas[0] for replicas in partitions.values())

    def plan(
        self, moving: Sequence[TopicPartition], replication_factor: int | None
    ) -> dict[TopicPartition, ReplicaIds]:
        planned = {}
        for tp in moving:
            before = tuple(self._partitions[tp])
            after = self._place(tp, before, replication_factor or len(before))
            if after != before:
                planned[tp] = after
                self._hosted.subtract(before)
                self._hosted.update(after)
                self._led[before[0]] -= 1
                self._led[after[0]] += 1
        return planned

    def _place(self, tp: TopicPartition, before: ReplicaIds, size: int) -> ReplicaIds:
        # A replica on a leaving broker keeps its place in the list, because the first one is the preferred leader.
        places: list[int | None] = [broker_id if broker_id in self._stay else None for broker_id in before[:size]]
        places += [None] * (size - len(places))
        for index, place in enumerate(places):
            if place is None:
                others = [broker_id for broker_id in places if broker_id is not None]
                choices = [target for target in self._targets if target not in others]
                if not choices:
                    raise ErrorCode.INVALID_REPLICATION_FACTOR.exception(
                        f"partition {tp.topic}-{tp.partition} needs {size} brokers: beside {others} only"
                        f" {list(self._targets)} can be used"
                    )
                places[index] = self._best(choices, others, leads=index == 0)
        return tuple(place for place in places if place is not None)

    def _best(self, choices: Sequence[int], others: Sequence[int], *, leads: bool) -> int:
        used = [self._racks.get(other, "") for other in others]
        crowded = {rack: crowding(rack, used) for rack in {self._racks.get(choice, "") for choice in choices}}
        return min(
            choices,
            key=lambda choice: (
                crowded[self._racks.get(choice, "")],
                self._led[choice] if leads else 0,
                self._hosted[choice],
                choice,
            ),
        )

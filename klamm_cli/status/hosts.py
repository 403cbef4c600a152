"""The brokers of a cluster by host, so that many brokers of one machine take one line. Pure.

Brokers are on one host if they are in the same failure domain (`broker.rack`) and have the same host in their
addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from klamm.admin.types import ServerDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host and its brokers, in the order of their ids."""

    host: str
    rack: str
    brokers: Sequence[ServerDescription]

    @property
    def ids(self) -> str:
        """The ids of the brokers, as `1-4,7`."""
        return ",".join(ranges(broker.node_id for broker in self.brokers))

    @property
    def state(self) -> str:
        """The state of the brokers. If it is not the same for all, their number in each state."""
        counts = Counter(map(state_of, self.brokers))
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))

    def total(self, counts: Mapping[int, int]) -> int:
        """Returns the sum of the counts of the host's brokers, given by broker id."""
        return sum(counts.get(broker.node_id, 0) for broker in self.brokers)


def state_of(broker: ServerDescription) -> str:
    """Returns the state of a broker in one or two words."""
    return "fenced" if broker.fenced else "shutting down" if broker.in_controlled_shutdown else "live"


def hosts_of(brokers: Iterable[ServerDescription]) -> list[Host]:
    """Returns the hosts, in the order of their first brokers."""
    found: dict[tuple[str, str], list[ServerDescription]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.node_id):
        # Brokers without a rack are not known to share a host. They may be behind one address.
        key = (broker.rack, broker.host) if broker.rack else (f"broker {broker.node_id}", broker.host)
        found.setdefault(key, []).append(broker)
    return [Host(host=own[0].host, rack=own[0].rack, brokers=own) for own in found.values()]


def ranges(numbers: Iterable[int]) -> list[str]:
    """Returns the numbers in rising order, with consecutive ones as a range: 1, 2, 3 and 7 are `1-3` and `7`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return ["-".join(map(str, bounds)) for bounds in found]

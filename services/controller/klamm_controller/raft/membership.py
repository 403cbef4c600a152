"""The voter sets. A voter set is an entry of the log and is in force as soon as it is appended (KIP-853, thesis 4.1).

A set takes effect when a replica appends it, committed or not. It loses its effect if the entry is truncated. Two sets
in a row differ by one voter, so their majorities overlap. A leader begins a change only after the previous change and
an entry of its own term have committed. The second condition fixes the thesis' single-server change. Without it, two
leaders can each add a voter to a set that the other leader has not seen.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from klamm_controller.raft.messages import EntryKind, LogEntry, ReplicaKey, Voter


class VoterSet:
    """An immutable set of voters, ordered by key. Each node id occurs once per directory."""

    __slots__ = ("_voters", "keys")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.key: voter for voter in sorted(voters)}
        self.keys: tuple[ReplicaKey, ...] = tuple(self._voters)

    @classmethod
    def from_bytes(cls, payload: bytes) -> VoterSet:
        """Decodes the bytes of `to_bytes`. Raises ValueError if they are malformed."""
        try:
            rows = json.loads(payload)
            return cls(Voter(ReplicaKey(int(node_id), str(directory)), str(at)) for node_id, directory, at in rows)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{payload[:80]!r} is not a voter set: {error}") from error

    def to_bytes(self) -> bytes:
        """Encodes the set as JSON: [[node id, directory id, endpoint], ...], ordered by key. Equal sets have equal
        bytes."""
        rows = [[voter.key.node_id, voter.key.directory_id, voter.endpoint] for voter in self._voters.values()]
        return json.dumps(rows, separators=(",", ":")).encode()

    def with_voter(self, voter: Voter) -> VoterSet:
        """Returns the set with `voter` added."""
        return VoterSet([*self._voters.values(), voter])

    def with_endpoint_of(self, voter: Voter) -> VoterSet:
        """Returns the same set with a new endpoint of `voter`."""
        return self.without(voter.key).with_voter(voter)

    def without(self, key: ReplicaKey) -> VoterSet:
        """Returns the set without the voter `key`."""
        return VoterSet(voter for voter in self._voters.values() if voter.key != key)

    def endpoint(self, key: ReplicaKey) -> str | None:
        """Returns the endpoint of the voter, or None if the set does not have it."""
        voter = self._voters.get(key)
        return voter.endpoint if voter else None

    def __contains__(self, key: ReplicaKey) -> bool:
        return key in self._voters

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(self.keys)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(map(str, self.keys))})"


class VoterHistory:
    """Tells the voter set that is in force for each end of the log.

    Invariant: `_ends` grows strictly; `_ends[0]` is at or before the end of the snapshot."""

    def __init__(self, end_index: int, voters: VoterSet) -> None:
        self._ends = [end_index]
        self._sets = [voters]
        self.latest = voters
        """The voter set in force at the end of the log."""

    @property
    def latest_end_index(self) -> int:
        """The index after the entry with the set in force."""
        return self._ends[-1]

    def at(self, end_index: int) -> VoterSet:
        """Returns the voter set in force for a log that ends at `end_index`."""
        position = bisect_right(self._ends, end_index) - 1
        assert position >= 0, (end_index, self._ends)
        return self._sets[position]

    def names_since(self, end_index: int, key: ReplicaKey) -> bool:
        """Returns True if the set in force at `end_index`, or any later set, contains the replica."""
        position = bisect_right(self._ends, end_index) - 1
        assert position >= 0, (end_index, self._ends)
        return any(key in voters for voters in self._sets[position:])

    def append(self, entries: Iterable[LogEntry]) -> None:
        """Adds the voter sets among the new entries."""
        for entry in entries:
            if entry.kind is EntryKind.VOTERS:
                self._ends.append(entry.index + 1)
                self._sets.append(VoterSet.from_bytes(entry.payload))
                self.latest = self._sets[-1]

    def cut_end(self, end_index: int) -> None:
        """Drops the sets of entries from `end_index` on."""
        while len(self._ends) > 1 and self._ends[-1] > end_index:
            self._ends.pop()
            self._sets.pop()
        self.latest = self._sets[-1]

    def cut_start(self, start_index: int) -> None:
        """Drops the sets that are in force only for ends before `start_index`."""
        keep = max(0, bisect_right(self._ends, start_index) - 1)
        del self._ends[:keep], self._sets[:keep]

    def check_invariants(self) -> None:
        """Asserts the class's invariant, and that two sets in a row differ by at most one voter."""
        assert all(a < b for a, b in zip(self._ends, self._ends[1:], strict=False)), self._ends
        for before, after in zip(self._sets, self._sets[1:], strict=False):
            assert len(set(before.keys) ^ set(after.keys)) <= 1, (before, after)
        assert self.latest is self._sets[-1], self.latest

"""The entries that any replica has ever appended and committed. The checkers compare the replicas with this history.

Every position of every log is named by (end index, term) and has a digest of all that comes before it. If two logs
have a position in common they have the digest in common (log matching), so comparing two prefixes is comparing two
numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import EntryKind, LogEntry
from tests.sim.raftsim.replica import digest
from tests.support.violation import Violation


@dataclass(frozen=True, slots=True)
class Position:
    """The end of a prefix of some log."""

    state: int
    """The digest of the prefix."""
    voters: VoterSet
    """The voters in force at this position."""
    voters_end_index: int
    """Just after the entry with those voters."""


class History:
    """Grows with the run."""

    def __init__(self, voters: VoterSet) -> None:
        self.positions: dict[tuple[int, int], Position] = {(0, 0): Position(0, voters, 0)}
        self.committed: list[tuple[int, int]] = []
        """(term, digest of the state after it) of each committed entry."""
        self._commit_terms: list[int] = []
        """The term of the leader that first committed each entry. It never decreases."""

    @property
    def committed_end_index(self) -> int:
        return len(self.committed)

    def append(self, before: Position, entry: LogEntry) -> Position:
        """Notes an entry after a position, and returns the position after the entry."""
        voters, voters_end_index = before.voters, before.voters_end_index
        if entry.kind is EntryKind.VOTERS:
            voters, voters_end_index = VoterSet.from_bytes(entry.payload), entry.index + 1
        after = Position(digest(before.state, entry), voters, voters_end_index)
        known = self.positions.setdefault((entry.index + 1, entry.term), after)
        if known.state != after.state:
            raise Violation(f"log matching: two different logs contain {entry.describe()}")
        return known

    def commit(self, positions: list[tuple[int, int | None]], commit_term: int) -> None:
        """Notes that a leader of `commit_term` committed these (end index, term), which follow what was committed."""
        for end_index, term in positions:
            if term is None:
                raise Violation(f"state machine safety: {end_index} is committed, but not in the leader's log")
            assert end_index == len(self.committed) + 1, (end_index, len(self.committed))
            self.committed.append((term, self.positions[end_index, term].state))
            self._commit_terms.append(commit_term)

    def committed_before_term(self, term: int) -> int:
        """The end of what leaders of terms below `term` committed, as far as is known."""
        return bisect_left(self._commit_terms, term)

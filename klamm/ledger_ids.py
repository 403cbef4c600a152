"""Names of batch ledgers, and of the transactional ids whose transactions a ledger decides about.

A ledger says which batches of one query's output to a sink count (`klamm.ledger`). Each task writes its part of a batch
in a transaction of its own; all ids of a ledger are in the shard of the ledger, so that a decision is one append:

    __sink/<sink>/<query id>                            the ledger
    __sink/<sink>/<query id>/<partition>/<attempt>      a part
"""

from __future__ import annotations

import re
from typing import NamedTuple

PREFIX = "__sink/"
NAME_LENGTH_MAX = 249
_NAME = rf"[a-zA-Z0-9._:-]{{1,{NAME_LENGTH_MAX}}}"
_KEY = re.compile(rf"__sink/({_NAME})/({_NAME})(?:/[0-9]{{1,10}}/[0-9]{{1,10}})?")
_PART = re.compile(rf"__sink/{_NAME}/{_NAME}/[0-9]{{1,10}}/[0-9]{{1,10}}")


class LedgerId(NamedTuple):
    """Identifies a ledger: the sink, and the query whose output it has."""

    sink: str
    query_id: str

    @property
    def key(self) -> str:
        """Returns the key that selects this ledger's coordinator."""
        return f"{PREFIX}{self.sink}/{self.query_id}"

    def part(self, partition: int, attempt: int) -> str:
        """Returns the transactional id of a task's attempt. All batches share the ids, so that there are few."""
        return f"{self.key}/{partition}/{attempt}"


def ledger_of(key: str) -> LedgerId | None:
    """Returns the ledger that `key` names, or whose part it names. Returns None if it is neither."""
    if not key.startswith(PREFIX):
        return None
    match = _KEY.fullmatch(key)
    return None if match is None else LedgerId(match[1], match[2])


def ledger_problem(ledger: LedgerId) -> str | None:
    """Returns why these names are not valid for a ledger, or None."""
    if ledger_of(ledger.key) == ledger:
        return None
    return (
        f"sink {ledger.sink!r} and query id {ledger.query_id!r}: expected 1 to {NAME_LENGTH_MAX} ASCII letters, digits,"
        " '.', '_', ':' and '-' each"
    )


def is_misnamed(transactional_id: str) -> bool:
    """Returns whether an id begins like the ids of ledgers but is not the id of a part."""
    return transactional_id.startswith(PREFIX) and _PART.fullmatch(transactional_id) is None

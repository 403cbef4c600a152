"""The states of a segment, and the legal transitions between them.

| state     | files             | what it is                                          | open |
|-----------|-------------------|-----------------------------------------------------|------|
| UNKNOWN   | found, or not yet | a base offset: nothing was read or written          | no   |
| ACTIVE    | `N.log`           | the newest of its log, which is appended to         | yes  |
| OPEN      | `N.log`           | only read                                           | yes  |
| RELEASED  | `N.log`           | as OPEN, without file descriptor and indexes        | no   |
| WRITING   | `N.log.cleaned`   | the unfinished output of a compaction or a repair   | yes  |
| WRITTEN   | `N.log.cleaned`   | that output, finished                               | no   |
| ANNOUNCED | `N.log.swap`      | it will replace other segments, even after a crash  | no   |
| DELETED   | `*.deleted`, none | no longer part of a log                             | no   |

Legal transitions:

| from      | to                                                                                        |
|-----------|-------------------------------------------------------------------------------------------|
| UNKNOWN   | ACTIVE or WRITING (created), OPEN (opened, recovered), RELEASED (attached), DELETED       |
| ACTIVE    | OPEN (the log rolled), RELEASED (the log is closed, or was cut before it)                 |
| OPEN      | ACTIVE (a truncation removed all later ones), RELEASED (the pool needs its place)         |
| RELEASED  | OPEN (it is to be read), DELETED (expired, cut off or replaced)                           |
| WRITING   | WRITTEN (its files are closed)                                                            |
| WRITTEN   | ANNOUNCED (it is to be put into the log), DELETED (it is not needed, or a write failed)   |
| ANNOUNCED | RELEASED (it took its place), DELETED (its files could not be renamed)                    |
| DELETED   |                                                                                           |
"""

from __future__ import annotations

from enum import Enum


class SegmentState(Enum):
    """The states of a segment. The module's docstring has their meanings and transitions."""

    UNKNOWN = "unknown"
    ACTIVE = "active"
    OPEN = "open"
    RELEASED = "released"
    WRITING = "writing"
    WRITTEN = "written"
    ANNOUNCED = "announced"
    DELETED = "deleted"


_S = SegmentState
LEGAL_TRANSITIONS: dict[SegmentState, frozenset[SegmentState]] = {
    _S.UNKNOWN: frozenset({_S.ACTIVE, _S.WRITING, _S.OPEN, _S.RELEASED, _S.DELETED}),
    _S.ACTIVE: frozenset({_S.OPEN, _S.RELEASED}),
    _S.OPEN: frozenset({_S.ACTIVE, _S.RELEASED}),
    _S.RELEASED: frozenset({_S.OPEN, _S.DELETED}),
    _S.WRITING: frozenset({_S.WRITTEN}),
    _S.WRITTEN: frozenset({_S.ANNOUNCED, _S.DELETED}),
    _S.ANNOUNCED: frozenset({_S.RELEASED, _S.DELETED}),
    _S.DELETED: frozenset(),
}

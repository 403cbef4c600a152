"""The exit statuses of the command `klamm`."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit status of a command that failed; 0 means success."""

    FAILED = 1
    """The cluster rejected all or part of the work."""
    USAGE = 2
    """The command line or the input is wrong."""
    UNREACHABLE = 3
    """No server answered."""
    DENIED = 4
    """`klamm acls check` found that the operation is denied."""
    INTERRUPTED = 130
    """The user pressed Ctrl-C."""
    BROKEN_PIPE = 141
    """The reader of the output has gone, as `head` does. A shell reports this status for SIGPIPE."""
    TERMINATED = 143
    """SIGTERM ended the command in good order."""

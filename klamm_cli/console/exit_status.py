"""What the command's exit status says."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """See the module's docstring; 0 is success."""

    FAILED = 1
    """The cluster rejected all or part of the work."""
    USAGE = 2
    """The command line or the input is wrong."""
    UNREACHABLE = 3
    """No server answered."""
    DENIED = 4
    """`klamm acls check` found that the operation is denied."""
    INTERRUPTED = 130
    """Ctrl-C."""

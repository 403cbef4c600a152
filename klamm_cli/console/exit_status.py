"""What the command's exit status says."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """See the module's docstring; 0 is success."""

    FAILED = 1
    """The cluster refused, or part of the work was refused."""
    USAGE = 2
    """The command line or the input is wrong."""
    UNREACHABLE = 3
    """No server answered."""
    DENIED = 4
    """`klamm acls check` was answered, and the answer is no."""
    INTERRUPTED = 130
    """Ctrl-C."""

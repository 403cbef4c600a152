"""The entry point of the command `klamm`. Every command ends with an exit status and without a traceback."""

from __future__ import annotations

import gc
import logging
import os
import sys
from typing import Final

from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.interrupt import (
    handle_interrupts,
    let_interrupts_kill,
    repeat_swallowed_interrupts,
    status_of_signal,
)
from klamm_cli.console.streams import end_output, failed, prepare_streams

_GC_THRESHOLD: Final = 50_000
"""The number of new objects after which Python's garbage collector runs. Python's default is 700."""


def main() -> None:
    """Runs the command of `sys.argv`."""
    handle_interrupts()
    prepare_streams(needs_output=sys.argv[1:2] != ["up"])
    # Commands print errors in one line, so gRPC and the client library must not log. Servers (`up`) log more.
    if sys.argv[1:2] != ["up"]:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        logging.getLogger("klamm").addHandler(logging.NullHandler())
    try:
        with repeat_swallowed_interrupts():
            status = _run(sys.argv[1:])
        let_interrupts_kill()
    except KeyboardInterrupt:
        status = ExitStatus.INTERRUPTED
    except OSError as error:
        status = failed(error)
    status = end_output(status)
    sys.exit(int(status_of_signal() if status == ExitStatus.INTERRUPTED else status))


def _run(arguments: list[str]) -> int:
    """Runs the command, and returns its exit status."""
    if arguments[:1] == ["up"]:
        # To import typer and the client's commands would cost a server 0.2 s and 10 MB.
        from klamm_cli.commands.up import up

        return up(arguments[1:])
    # Imported objects stay. The garbage collector would scan them many times, which is a tenth of a command's time.
    gc.set_threshold(_GC_THRESHOLD)
    from klamm_cli.app import run

    return run()

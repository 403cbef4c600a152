"""A signal ends a command even if it arrives in a destructor, whose exceptions Python swallows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.waiting import patience

PROGRAM = """
import signal, sys, threading
from klamm_cli import main

class Interrupted:
    def __del__(self):
        signal.raise_signal(signal.{number})

def run(arguments):
    Interrupted()
    threading.Event().wait()

main._run = run
main.main()
"""


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_in_a_destructor_ends_the_command(number, status):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(number=number)], capture_output=True, timeout=patience(), check=False
    )
    assert (ended.returncode, ended.stderr) == (status, b"")

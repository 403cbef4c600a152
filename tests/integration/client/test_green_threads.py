"""A process in which gevent or eventlet has replaced Python's threads gets an error, and does not wait for ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.waiting import patience

GEVENT = "from gevent.monkey import patch_all as patch"
EVENTLET = "from eventlet import monkey_patch as patch"
PROGRAM = """
import warnings
warnings.simplefilter("ignore")
{patch}
patch({options})
from klamm import {client}
print({client}(bootstrap_servers="127.0.0.1:1"))
"""
LEFT_OUT = "thread=False, socket=False, select=False"


def run(patch: str, client: str, options: str = "") -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(patch=patch, client=client, options=options)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(), check=False
    )


@pytest.mark.parametrize("client", ["Producer", "Consumer", "Admin"])
@pytest.mark.parametrize(
    ("patch", "library", "call"),
    [(GEVENT, "gevent", "monkey.patch_all"), (EVENTLET, "eventlet", "eventlet.monkey_patch")],
)
def test_a_client_says_at_once_that_green_threads_do_not_work(patch: str, library: str, call: str, client: str) -> None:
    failed = run(patch, client)
    assert failed.returncode == 1
    assert failed.stderr.rstrip().endswith(
        f"IllegalStateError: {library} has replaced Python's thread and socket and select, so a client of Klamm would"
        f" wait for ever; expected a process without {call}(), or with {call}({LEFT_OUT})"
    )


def test_a_client_of_a_process_with_the_named_exceptions_works() -> None:
    allowed = run(GEVENT, "Producer", LEFT_OUT)
    assert (allowed.returncode, allowed.stdout) == (
        0,
        "<Producer client.id=klamm-producer bootstrap.servers=127.0.0.1:1>\n",
    ), allowed.stderr

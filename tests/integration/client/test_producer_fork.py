"""Tests the calls that a forked child may make. gRPC does not survive a fork, so no call may hang there."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.support.scripted_broker import ScriptedCluster
from tests.support.waiting import patience

PRELUDE = """
import os, sys, warnings
from klamm import Producer
from klamm.errors import IllegalStateError

def in_child(function):
    pid = os.fork()
    if not pid:
        try:
            function()
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def produce():
    with Producer(bootstrap_servers=sys.argv[1]) as producer:
        producer.send("t", b"v").result()
"""


def run(script: str) -> list[bytes | None]:
    """Runs the script in a process without threads. Returns the values that the cluster received."""
    cluster = ScriptedCluster()
    cluster.create_topic("t", 1)
    with cluster.serve_in_thread():
        command = [sys.executable, "-c", PRELUDE + textwrap.dedent(script), cluster.bootstrap]
        result = subprocess.run(command, capture_output=True, text=True, timeout=patience())
    assert result.returncode == 0, result.stderr
    return cluster.values("t")


def test_children_of_a_process_without_clients_produce() -> None:
    assert run("in_child(produce); in_child(produce); produce()") == [b"v"] * 3


def test_a_forked_child_cannot_use_the_parents_producer_and_the_parent_can() -> None:
    script = """
        producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
        producer.send("t", b"before")

        def use_both():
            for use in (lambda: producer.send("t", b"child"), producer.flush, produce):
                try:
                    use()
                except IllegalStateError as error:
                    assert "fork" in str(error), error
                else:
                    raise AssertionError("no error")
            producer.close()

        in_child(use_both)
        producer.send("t", b"after")
        producer.close()
    """
    assert run(script) == [b"before", b"after"]


def test_subprocesses_start_while_a_producer_uses_grpc() -> None:
    script = """
        import subprocess, threading

        ended = threading.Event()

        def produce_until_ended():
            with Producer(bootstrap_servers=sys.argv[1]) as producer:
                while not ended.is_set():
                    producer.send("t", b"v").result()

        thread = threading.Thread(target=produce_until_ended)
        thread.start()
        # A preexec_fn makes it a real fork, as Spark's launcher does.
        statuses = [subprocess.run(["true"], preexec_fn=os.getpid).returncode for _ in range(100)]
        ended.set()
        thread.join()
        assert statuses == [0] * 100, statuses
    """
    assert set(run(script)) == {b"v"}

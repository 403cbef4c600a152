"""A Spark standalone cluster on loopback: a master and workers, started from pyspark's own classes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence

import pyspark

from pyspark_klamm.java import java_home
from tests.support.ports import free_port
from tests.support.waiting import patience, wait_until

_DEPLOY = "org.apache.spark.deploy"


@contextlib.contextmanager
def standalone_cluster(directory: pathlib.Path, *, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> Iterator[str]:
    """Yields the master's address after its workers have registered: one worker with one core on each host.

    Programs there find only the files of this project that are shipped to them, because PYTHONPATH is not passed on."""
    home = pathlib.Path(pyspark.__file__).parent
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    port, web_port = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    address = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
    commands: list[tuple[str, ...]] = [(f"{_DEPLOY}.master.Master", *address)]
    for number, host in enumerate(hosts):
        where = ("--host", host, "--webui-port", "0", "--work-dir", str(directory / f"worker-{number}"))
        commands.append((f"{_DEPLOY}.worker.Worker", *where, "--cores", "1", "--memory", "1g", url))
    with contextlib.ExitStack() as running:
        for number, (name, *arguments) in enumerate(commands):
            log = running.enter_context((directory / f"{number}.log").open("w"))
            command = [str(home / "bin" / "spark-class"), name, *arguments]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            running.callback(_end, process)
        _wait_for_workers(f"http://127.0.0.1:{web_port}/json/", len(hosts))
        yield url


def _wait_for_workers(url: str, workers: int) -> None:
    def alive() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=patience()) as answer:
            return f'"aliveworkers" : {workers}' in answer.read().decode()
        return False

    wait_until(alive, f"no {workers} workers at {url}", pause_s=0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)

"""A Docker engine for the tests: the one that runs, or one of their own, which leaves nothing behind."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator

import docker
from docker import DockerClient
from docker.errors import DockerException

from tests.support.waiting import patience


class NoEngineError(Exception):
    """There is no engine, and none can be started. The text gives the reason."""


@contextlib.contextmanager
def running_engine() -> Iterator[DockerClient]:
    """Yields a client of the engine. Sets DOCKER_HOST if it starts an engine of its own. Raises NoEngineError."""
    if _answers():
        with contextlib.closing(docker.from_env()) as client:
            yield client
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise NoEngineError("no Docker engine runs, and only root can start dockerd, where it is installed")
    with tempfile.TemporaryDirectory(prefix="klamm-docker-", ignore_cleanup_errors=True) as text:
        directory = pathlib.Path(text)
        os.environ["DOCKER_HOST"] = f"unix://{directory}/docker.sock"
        command = ["dockerd", "--data-root", f"{directory}/data", "--exec-root", f"{directory}/exec"]
        command += ["--host", os.environ["DOCKER_HOST"], "--pidfile", f"{directory}/pid"]
        with (directory / "log").open("w") as log:
            engine = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_until_it_answers(engine, directory / "log")
            with contextlib.closing(docker.from_env()) as client:
                yield client
        finally:
            engine.terminate()
            engine.wait(patience())
            del os.environ["DOCKER_HOST"]


def _answers() -> bool:
    with warnings.catch_warnings():
        # Without an engine the SDK leaves an open socket to the collector, which would complain in any test.
        warnings.simplefilter("ignore", ResourceWarning)
        answers = _ping()
        gc.collect()
    return answers


def _ping() -> bool:
    try:
        with contextlib.closing(docker.from_env()) as client:
            return bool(client.ping())
    except DockerException:
        return False


def _wait_until_it_answers(engine: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    until_s = time.monotonic() + patience()
    while not _answers():
        if engine.poll() is not None or time.monotonic() > until_s:
            raise NoEngineError(f"dockerd does not start: {log.read_text()[-1000:]}")
        time.sleep(0.2)

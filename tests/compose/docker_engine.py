"""A Docker engine for the tests: the one that runs, or one of their own, which leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Final

START_TIMEOUT_S: Final = 60


class NoEngineError(Exception):
    """There is no engine, and none can be started; the text says why."""


def docker(*arguments: str, check: bool = True, stdin: str = "") -> str:
    """What the command prints. Raises AssertionError with its complaint when it fails."""
    done = subprocess.run(["docker", *arguments], input=stdin, capture_output=True, text=True)
    assert done.returncode == 0 or not check, f"docker {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()


@contextlib.contextmanager
def running_engine() -> Iterator[None]:
    """Sets DOCKER_HOST, if the engine is one of its own. Raises NoEngineError."""
    if shutil.which("docker") is None:
        raise NoEngineError("there is no docker command")
    if _answers():
        yield
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
            yield
        finally:
            engine.terminate()
            engine.wait(START_TIMEOUT_S)
            del os.environ["DOCKER_HOST"]


def _answers() -> bool:
    return subprocess.run(["docker", "info"], capture_output=True).returncode == 0


def _wait_until_it_answers(engine: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    until_s = time.monotonic() + START_TIMEOUT_S
    while not _answers():
        if engine.poll() is not None or time.monotonic() > until_s:
            raise NoEngineError(f"dockerd does not start: {log.read_text()[-1000:]}")
        time.sleep(0.2)

"""One cluster for all clients: three brokers, so that they meet redirections and replicas."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import uuid
import warnings
from collections.abc import Iterator

import pytest

STOP_TIMEOUT_S = 60


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Kafka listeners of a cluster of processes, as `klamm up` starts it."""
    directory = tmp_path_factory.mktemp("clients")
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(directory / "data"), "--port", "0"]
    with (directory / "up.log").open("w") as log:
        process = subprocess.Popen([*command, "--brokers", "3"], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        ready = re.search(r"Kafka clients at (\S+), data", line)
        assert ready, line + (directory / "up.log").read_text()
        yield ready[1]
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        process.stdout.close()


@pytest.fixture
def name() -> str:
    """For a topic, group or transactional id that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def clients_leave_their_sockets_behind() -> Iterator[None]:
    """Which is not ours to mend, and not the next test's fault."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()

"""grpcurl, which finds the contracts by reflection: the examples of its guide, against a fresh `klamm up`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.go_programs import GRPCURL
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.pages import blocks, on_its_port, shown
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients]
PAGE = "docs/how-to/call-with-grpcurl.md"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KlammProcess]:
    with running_cluster(tmp_path / "cluster") as process:
        yield process


def test_the_examples_of_the_guide_print_what_it_shows(cluster: KlammProcess, tmp_path: Path) -> None:
    [program] = GRPCURL.command()
    (tmp_path / "grpcurl").symlink_to(program)
    outputs = dict(shown(PAGE))
    commands = blocks(PAGE, "")
    assert outputs.keys() < set(commands)
    for command in commands:
        printed = without_error(cluster, tmp_path, command)
        assert printed == outputs.get(command, printed)


def without_error(cluster: KlammProcess, directory: Path, script: str) -> str:
    """Repeats the commands of the script until their answers have no error, and returns what they print then. A broker
    learns of a new topic a moment later, and a coordinator has to load its groups."""
    printed = ""

    def is_done() -> bool:
        nonlocal printed
        printed = on_shell(cluster, directory, script)
        return "error_code" not in printed

    wait_until(is_done, lambda: printed)
    return printed


def on_shell(cluster: KlammProcess, directory: Path, script: str) -> str:
    """Returns what the commands of the script print. Each of them must succeed."""
    return subprocess.run(
        ["bash", "-e", "-u", "-o", "pipefail"],
        input=on_its_port(cluster, script),
        env={**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout

"""Reads the programs and commands of README, the guides and the tutorial, and runs them against a cluster."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

from klamm.config import DEFAULT_PORT
from tests.support.klamm_process import KlammProcess

ROOT = pathlib.Path(__file__).parents[2]


def _fenced(page: str) -> list[tuple[str, str, str]]:
    """Returns each code block of a page: the text between the block before and this one, its language, and its code."""
    text = re.split(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    return list(zip(text[::3], text[1::3], text[2::3], strict=False))


def blocks(page: str, language: str) -> list[str]:
    """Returns the code blocks of a page."""
    found = [code for _, name, code in _fenced(page) if name == language]
    assert found, f"{page} has no {language} block"
    return found


def steps(page: str) -> list[tuple[str, str]]:
    """Returns a page's programs, each with the name to save it by, and its commands, each with an empty name."""
    found = []
    for before, language, code in _fenced(page):
        if language == "python":
            (name,) = re.findall(r"Save this program as `(\S+)`", before)
            found.append((name, code))
        elif not language:
            found.append(("", code))
    assert found, f"{page} has no step"
    return found


def run(cluster: KlammProcess, command: list[str], directory: pathlib.Path, text: str = "") -> str:
    """Runs the command in the directory, so that it writes nothing into the project. Returns its output."""
    environment = {
        **os.environ,
        "KLAMM_BOOTSTRAP": cluster.bootstrap,
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ended = subprocess.run(
        command,
        input=text,
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def on_its_port(cluster: KlammProcess, program: str) -> str:
    """Returns the program with the cluster's port, because another cluster may have the default port."""
    assert f"localhost:{DEFAULT_PORT}" in program
    return program.replace(f"localhost:{DEFAULT_PORT}", cluster.bootstrap)


def run_shell(cluster: KlammProcess, directory: pathlib.Path, script: str) -> str:
    """Runs the script. Each command ends the shell if it fails, and the shell prints each command."""
    return run(cluster, ["bash", "-e", "-u", "-x", "-o", "pipefail"], directory, script)


def run_python(cluster: KlammProcess, directory: pathlib.Path, program: str) -> str:
    """Runs the program. A warning is an error."""
    return run(cluster, [sys.executable, "-W", "error", "-"], directory, on_its_port(cluster, program))

"""Reads the programs and commands of README, the guides and the tutorial, and runs them against a cluster."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import textwrap

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


_CODE = r"(?:(?! *```).*\n)*"
_SHOWN = re.compile(
    rf"^( *)```(?:python)?\n({_CODE})\1```\n(?:(?! *```|#).*\n)*\1```text\n({_CODE})\1```$", re.MULTILINE
)
"""A block of code, sentences without a heading, and a block of text."""


def shown(page: str) -> list[tuple[str, str]]:
    """Returns each code block of a page after which the section shows a text, and this text: what the code prints."""
    found = _SHOWN.findall((ROOT / page).read_text())
    assert found, f"{page} shows no output"
    return [(textwrap.dedent(code), textwrap.dedent(output)) for _, code, output in found]


def masked(output: str) -> list[str]:
    """Returns the lines of an output whose figures differ from run to run: without the figures and widths, sorted."""
    return sorted(re.sub(r" +", " ", re.sub(r"\d+(\.\d+)?", "0", line)) for line in output.splitlines())


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


def run(
    cluster: KlammProcess, command: list[str], directory: pathlib.Path, text: str = "", *, errors: int = subprocess.PIPE
) -> str:
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
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}"
    return ended.stdout


def on_its_port(cluster: KlammProcess, program: str) -> str:
    """Returns the program with the cluster's port, because another cluster may have the default port."""
    assert f"localhost:{DEFAULT_PORT}" in program
    return program.replace(f"localhost:{DEFAULT_PORT}", cluster.bootstrap)


def run_shell(cluster: KlammProcess, directory: pathlib.Path, script: str) -> str:
    """Runs the script. Each command ends the shell if it fails, and the shell prints each command."""
    return run(cluster, ["bash", "-e", "-u", "-x", "-o", "pipefail"], directory, script)


def on_terminal(cluster: KlammProcess, directory: pathlib.Path, script: str) -> str:
    """Runs the script. Returns what a terminal would show: the texts of both streams."""
    return run(cluster, ["bash", "-e", "-u", "-o", "pipefail"], directory, script, errors=subprocess.STDOUT)


def run_python(cluster: KlammProcess, directory: pathlib.Path, program: str) -> str:
    """Runs the program. A warning is an error."""
    return run(cluster, [sys.executable, "-W", "error", "-"], directory, on_its_port(cluster, program))

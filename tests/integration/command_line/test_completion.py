"""Tests completion: the script of each shell, and the suggestions for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.waiting import patience

COMMAND = (sys.executable, "-m", "klamm")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )


def completed(line: str) -> set[str]:
    """Returns the suggestions for the last word of a line, as bash gets them."""
    words = line.split(" ")
    ended = run(_KLAMM_COMPLETE="complete_bash", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1))
    assert ended.stderr == ""
    return set(ended.stdout.split())


def test_commands_and_options_are_completed():
    assert completed("klamm con") == {"configs", "consume"}
    assert completed("klamm topics de") == {"describe", "delete"}
    assert completed("klamm consume --key") == {"--key", "--key-separator"}
    assert completed("klamm up --co") == {"--controllers", "--coordinators"}
    assert {"--data-dir", "--help"} <= completed("klamm up --")


@pytest.mark.parametrize(
    ("shell", "part"),
    [("bash", "complete -o default"), ("zsh", "compdef"), ("fish", "complete --command klamm")],
)
def test_each_shell_has_its_script(shell, part):
    ended = run("--show-completion", shell)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert part in ended.stdout
    assert "_KLAMM_COMPLETE=complete_" + shell in ended.stdout
    assert (
        shutil.which(shell) is None
        or not subprocess.run([shell, "-n"], input=ended.stdout, text=True, check=True).stderr
    )


@pytest.mark.parametrize(
    ("shell", "file"),
    [("bash", ".bash_completions/klamm.sh"), ("zsh", ".zfunc/_klamm"), ("fish", ".config/fish/completions/klamm.fish")],
)
def test_each_shells_script_is_installed(tmp_path, shell, file):
    for _ in range(2):
        ended = run("--install-completion", shell, HOME=str(tmp_path))
        assert (ended.returncode, ended.stderr) == (0, "")
        assert file in ended.stdout
    assert "_KLAMM_COMPLETE" in (tmp_path / file).read_text()


def test_a_shell_that_is_not_known_is_refused():
    ended = run("--show-completion", "tcsh")
    assert ended.returncode == 2
    assert ended.stderr.startswith("klamm: ")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_subcommands_with_the_installed_script():
    """The script runs in bash, with `klamm` found on the path and with the words that readline would pass."""
    script = run("--show-completion", "bash").stdout
    klamm = os.path.join(os.path.dirname(sys.executable), "klamm")
    asked = (
        f"{script}\nCOMP_WORDS=({klamm} groups re) COMP_CWORD=2\n_klamm_completion {klamm}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    ended = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=patience(), check=True)
    assert set(ended.stdout.split()) == {"reset", "remove-members"}

"""Tests the projects in examples/, which run as their pages describe."""

from __future__ import annotations

import importlib.metadata
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
PLUGIN = "klamm.testing.plugin"


def test_every_example_passes_its_own_test() -> None:
    """Runs `pytest examples` in the clone, as their page says. One run tests all examples on one cluster."""
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "examples",
            "-q",
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
            "-W",
            "error",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout


def test_every_example_has_a_page_and_a_test_and_is_listed_in_the_readme() -> None:
    folders = [path for path in EXAMPLES.iterdir() if path.is_dir() and path.name[0] not in "._"]
    assert folders
    listed = (EXAMPLES / "README.md").read_text()
    for folder in folders:
        assert (folder / "README.md").exists(), folder
        assert list(folder.glob("test_*.py")), folder
        assert f"({folder.name}/README.md)" in listed


def test_the_pytest_plugin_is_registered_as_an_entry_point() -> None:
    assert PLUGIN in [entry_point.value for entry_point in importlib.metadata.entry_points(group="pytest11")]

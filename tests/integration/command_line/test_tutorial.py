"""Follows the tutorial against a fresh `klamm up`."""

from __future__ import annotations

import pathlib
import re
import sys

from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.pages import masked, on_its_port, on_terminal, shown, steps


def test_the_commands_and_programs_of_the_tutorial_work(tmp_path, monkeypatch):
    """Begins with the second page, because the first one installs Klamm and starts the cluster.

    `test_pages.py` runs the last page, whose program needs Spark.
    """
    shop = tmp_path / "shop"
    shop.mkdir()
    (tmp_path / "klamm-venv").symlink_to(pathlib.Path(sys.executable).parents[1])
    monkeypatch.setenv("HOME", str(tmp_path))
    with running_cluster(tmp_path / "cluster") as cluster:
        output = follow(cluster, shop, "2-write-and-read-records")
        assert output.splitlines() == shown_lines("2-write-and-read-records")
        output = follow(cluster, shop, "3-write-from-python")
        assert output.splitlines() == shown_lines("3-write-from-python")
        reads_all, reads_the_rest = follow(cluster, shop, "4-read-as-a-group").split("wrote 1000 clicks")
        assert masked(reads_all) == masked("\n".join(shown_lines("4-read-as-a-group")))
        assert visits(reads_all) == 1003
        assert lag(reads_all) == 0
        assert lag(reads_the_rest) == visits(reads_the_rest) == 1000


def follow(cluster: KlammProcess, directory: pathlib.Path, page: str) -> str:
    """Saves the programs and runs the commands of a page of the tutorial. Returns what they print."""
    output = []
    for name, code in steps(f"docs/tutorial/{page}.md"):
        if name:
            (directory / name).write_text(on_its_port(cluster, code))
        else:
            output.append(on_terminal(cluster, directory, code))
    return "".join(output)


def shown_lines(page: str) -> list[str]:
    """Returns the lines of all outputs that a page of the tutorial shows."""
    return [line for _, output in shown(f"docs/tutorial/{page}.md") for line in output.splitlines()]


def visits(output: str) -> int:
    """Returns the visits of all pages that `dashboard.py` printed."""
    return sum(map(int, re.findall(r"^(\d+) /", output, re.MULTILINE)))


def lag(output: str) -> int:
    """Returns the lag of all partitions that `klamm groups describe` printed."""
    partitions = re.findall(r"^clicks +\d+ +\d+ +\d+ +(\d+) ", output, re.MULTILINE)
    assert partitions, output
    return sum(map(int, partitions))

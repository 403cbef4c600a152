"""Tests the checks of a machine's Python, libraries and limits."""

from __future__ import annotations

import dataclasses

import pytest

from klamm_cli.doctor.finding import Level
from klamm_cli.doctor.host import OPEN_FILES_MIN, Host, check_host, this_host

SOUND = Host(
    python=(3, 12, 1),
    optimized=False,
    requirements=("grpcio<2,>=1.80", 'uvloop>=0.21; extra == "server"', 'pyspark==4.3.0; extra == "spark"'),
    installed={"grpcio": "1.85.1", "uvloop": "0.23.0"},
    open_files_hard=1_000_000,
)


def found(level, **changes):
    return [each.text for each in check_host(dataclasses.replace(SOUND, **changes)) if each.level is level]


def test_a_suitable_machine_has_no_problem():
    assert found(Level.WARNING) == found(Level.PROBLEM) == []
    assert "grpcio 1.85.1, uvloop 0.23.0" in found(Level.OK)


def test_the_machine_of_this_test_has_no_problem():
    assert not [each for each in check_host(this_host()) if each.level is Level.PROBLEM]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"python": (3, 10, 9)}, "Python 3.10.9"),
        ({"optimized": True}, "without assertions"),
        ({"installed": {"uvloop": "0.23.0"}}, "grpcio is missing, needed always"),
        ({"installed": {"grpcio": "1.79.9", "uvloop": "0.23.0"}}, "grpcio 1.79.9 is not <2,>=1.80"),
        ({"installed": {"grpcio": "2.0", "uvloop": "0.23.0"}}, "grpcio 2.0 is not <2,>=1.80"),
    ],
)
def test_an_unsuitable_python_or_library_is_a_problem(changes, said):
    (text,) = found(Level.PROBLEM, **changes)
    assert said in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"installed": {"grpcio": "1.80rc1"}}, "uvloop is missing, needed to run servers"),
        ({"requirements": None}, "klamm is not installed as a package"),
        ({"open_files_hard": OPEN_FILES_MIN - 1}, "a process may have 9999 files open (ulimit -Hn)"),
    ],
)
def test_a_missing_optional_library_or_a_low_limit_is_a_warning(changes, said):
    assert found(Level.WARNING, **changes) == [said]


def test_an_unlimited_number_of_open_files_is_no_warning():
    assert found(Level.WARNING, open_files_hard=-1) == []

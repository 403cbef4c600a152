"""Tests the modules that a starting server loads. Each forbidden one would cost tens of milliseconds and megabytes."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.support.waiting import patience

NEVER = {
    "cryptography",
    "email.message",
    "http.server",
    "hypothesis",
    "importlib.metadata",
    "kio",
    "klamm_broker.kafka.cold_apis",
    "klamm_coordinator.rpc.coordinator",
    "numpy",
    "opentelemetry",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "rich",
    "typer",
    "urllib.request",
    "zipfile",
}


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    """Runs the script in a new process. Returns its output after it has succeeded."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=patience())


def loaded_by(*modules: str) -> set[str]:
    """Returns the modules in a new process that has imported these."""
    script = f"import sys, {', '.join(modules)}; print('\\n'.join(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=patience()
    )
    return set(ended.stdout.split())


@pytest.mark.parametrize(
    "modules",
    [
        ("klamm_cli.main", "klamm_cli.commands.up", "klamm_embedded.up", "klamm_embedded.cluster"),
        ("klamm_controller.server", "klamm_server.main"),
        ("klamm_broker.server", "klamm_server.main"),
        ("klamm_coordinator.server", "klamm_server.main"),
    ],
    ids=["up", "controller", "broker", "coordinator"],
)
def test_a_starting_server_does_not_load_modules_that_it_may_never_need(modules):
    loaded = loaded_by(*modules)
    assert set(modules) <= loaded
    assert not loaded & NEVER


def test_klamm_up_starts_processes_without_loading_server_modules():
    loaded = loaded_by("klamm_cli.commands.up", "klamm_embedded.up", "klamm_embedded.processes")
    assert not loaded & {"klamm_broker.server", "klamm_controller.server", "klamm_coordinator.server", "rocksdict"}


@pytest.mark.parametrize("module", sorted(NEVER))
def test_every_module_that_must_not_be_loaded_exists(module):
    """A forbidden name with a typing mistake would never be found."""
    assert find_spec(module) is not None

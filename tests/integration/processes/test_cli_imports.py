"""Tests the modules that commands load: help and completion must be fast, and commands load no others' modules."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.support.waiting import patience

SLOW = {"grpc", "google.protobuf", "asyncio", "rich", "pydantic", "klamm.admin", "klamm.config", "klamm.errors"}
"""Modules whose import takes tens of milliseconds, or that import such a module."""


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    """Runs the script in a new process. Returns its output after it has succeeded."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=patience())


def loaded_by(*arguments: str) -> set[str]:
    script = (
        f"import sys; sys.argv = ['klamm', *{arguments!r}]\n"
        "from klamm_cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=patience()
    )
    assert "Usage: klamm" in ended.stdout, ended
    return set(ended.stderr.split())


def test_help_loads_neither_the_client_nor_any_command():
    loaded = loaded_by("--help")
    assert not loaded & SLOW
    assert not {"klamm_cli.commands.topics", "klamm_cli.commands.consume", "klamm_cli.console.output"} & loaded


@pytest.mark.parametrize("command", [("topics", "describe"), ("consume",), ("doctor",)])
def test_help_of_a_command_loads_no_client_and_no_other_command(command):
    loaded = loaded_by(*command, "--help")
    assert not loaded & {"grpc", "google.protobuf", "asyncio", "rich", "klamm.admin"}
    assert len(loaded & {"klamm_cli.commands.topics", "klamm_cli.commands.consume", "klamm_cli.doctor.command"}) == 1


def test_a_command_with_text_values_does_not_load_pydantic():
    """The command ends before it connects to a server, because its arguments exclude each other."""
    script = (
        "import sys; sys.argv = ['klamm', 'consume', 't', '-b', 'h:1', '--config', 'a=1', '--json', '--key']\n"
        "from klamm_cli.main import main\n"
        "try: main()\n"
        "except SystemExit as ended: print(ended.code, 'pydantic' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=patience()
    )
    assert ended.stdout.split() == ["2", "False"]


def test_an_admin_loads_no_consumer():
    script = "import sys; from klamm import Admin; print('\\n'.join(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=patience()
    )
    loaded = set(ended.stdout.split())
    assert "klamm.admin.sync_admin" in loaded
    assert not loaded & {"klamm.consumer.async_consumer", "klamm.consumer.classic.membership", "klamm.producer"}


OTHER_AREAS = {
    f"klamm.admin.{kind}.{area}"
    for kind in ("decode", "types")
    for area in ("configs", "groups", "ledgers", "log_dirs", "quorum", "replicas", "scrubs", "transactions")
}
"""A type costs a millisecond or two, and there are thirty."""


def test_describing_topics_loads_the_types_of_no_other_area():
    """The test covers the modules loaded before the request and those loaded for its answers."""
    script = (
        "import sys, klamm_cli.commands.topics\n"
        "from klamm import Admin\n"
        "from klamm.admin import decode\n"
        "from klamm.wire.v1 import controller_pb2\n"
        "decode.cluster_description(controller_pb2.DescribeClusterResponse())\n"
        "decode.topic_description(controller_pb2.DescribedTopic(topic_id=bytes(16)))\n"
        "print('\\n'.join(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=patience()
    )
    loaded = set(ended.stdout.split())
    assert {"klamm.admin.sync_admin", "klamm.admin.types.cluster", "klamm.admin.types.topics"} <= loaded
    assert not loaded & {*OTHER_AREAS, "klamm.consumer.assignors"}


@pytest.mark.parametrize("module", sorted({*SLOW, *OTHER_AREAS, "klamm.consumer.assignors"}))
def test_every_module_that_must_not_be_loaded_exists(module):
    assert find_spec(module) is not None

"""What commands load: help and completion are to be there at once, and no command pays for another."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

SLOW = {"grpc", "google.protobuf", "asyncio", "rich", "pydantic", "klamm.admin", "klamm.config", "klamm.errors"}
"""Each costs tens of milliseconds, or is what loads those."""


def loaded_by(*arguments: str) -> set[str]:
    script = (
        f"import sys; sys.argv = ['klamm', *{arguments!r}]\n"
        "from klamm.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert "Usage: klamm" in ended.stdout, ended
    return set(ended.stderr.split())


def test_help_loads_neither_the_client_nor_any_command():
    loaded = loaded_by("--help")
    assert not loaded & SLOW
    assert not {"klamm.cli.topics", "klamm.cli.consume", "klamm.cli.output"} & loaded


@pytest.mark.parametrize("command", [("topics", "describe"), ("consume",), ("doctor",)])
def test_help_of_a_command_loads_no_client_and_no_other_command(command):
    loaded = loaded_by(*command, "--help")
    assert not loaded & {"grpc", "google.protobuf", "asyncio", "rich", "klamm.admin"}
    assert len(loaded & {"klamm.cli.topics", "klamm.cli.consume", "klamm.cli.doctor.command"}) == 1


def test_a_command_that_is_given_text_loads_no_conversion():
    """It ends before it looks for a server: what it is given excludes each other."""
    script = (
        "import sys; sys.argv = ['klamm', 'consume', 't', '-b', 'h:1', '--config', 'a=1', '--json', '--key']\n"
        "from klamm.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as ended: print(ended.code, 'pydantic' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout.split() == ["2", "False"]


def test_an_admin_loads_no_consumer():
    script = "import sys; from klamm import Admin; print('\\n'.join(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    loaded = set(ended.stdout.split())
    assert "klamm.admin.sync_admin" in loaded
    assert not loaded & {"klamm.consumer.async_consumer", "klamm.consumer.membership", "klamm.producer"}


@pytest.mark.parametrize("module", sorted(SLOW))
def test_what_is_not_to_be_loaded_exists(module):
    assert find_spec(module) is not None

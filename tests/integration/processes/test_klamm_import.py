"""Tests which modules `import klamm` loads in a new process."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import patience


def test_import_alone_loads_neither_grpc_nor_protobuf() -> None:
    script = "import sys, klamm; sys.exit(any(name in sys.modules for name in ('grpc', 'google.protobuf', 'asyncio')))"

    assert subprocess.run([sys.executable, "-c", script], timeout=patience(), check=False).returncode == 0

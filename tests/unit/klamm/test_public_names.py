from __future__ import annotations

import subprocess
import sys

import pytest

import klamm


@pytest.mark.parametrize("name", klamm.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(klamm, name) is not None
    assert name in dir(klamm)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="'Nothing'"):
        klamm.__getattr__("Nothing")


def test_import_alone_loads_neither_grpc_nor_protobuf() -> None:
    script = "import sys, klamm; sys.exit(any(name in sys.modules for name in ('grpc', 'google.protobuf', 'asyncio')))"

    assert subprocess.run([sys.executable, "-c", script], timeout=30, check=False).returncode == 0

"""Builds wheels from a copy of the source tree, as the image and cibuildwheel do."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from klamm.core import core
from tools.build_core import ROOT

PARTS = ("pyproject.toml", "README.md", "LICENSE", "tools", "proto", "klamm", "klamm_cli", "services", "spark")
"""What the `build` stage of deploy/Dockerfile copies."""
EXT_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(core is None, reason="klamm was built without a C compiler, or KLAMM_CORE=pure"),
]


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns a copy of the sources. It has old cores of this Python and of another one, as a developer's tree may."""
    root = tmp_path / "tree"
    root.mkdir()
    for part in PARTS:
        if (ROOT / part).is_file():
            shutil.copy(ROOT / part, root / part)
        else:
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__", "_core.*.so"))
    for suffix in (EXT_SUFFIX, ".cpython-310-x86_64-linux-gnu.so"):
        (root / "klamm" / f"_core{suffix}").touch()
    return root


def run(command: list[str], directory: pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def build(tree: pathlib.Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], tree, **environment)


def test_a_wheel_has_the_compiled_core_of_its_python_alone_and_it_works(tree: pathlib.Path) -> None:
    done = build(tree, KLAMM_CORE="compiled")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tree / "dist").glob("*.whl")
    installed = tree.parent / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    modules = [path.name for path in (installed / "klamm").glob("_core.*.so")]
    assert modules == [f"_core{EXT_SUFFIX}"]
    assert f"-cp{sys.version_info.major}{sys.version_info.minor}-" in wheel.name

    # -P: not the sources beside the script.
    script = [sys.executable, "-P", str(ROOT / "tools" / "try_core.py")]
    tried = run(script, installed, PYTHONPATH=str(installed), KLAMM_CORE="compiled")

    assert tried.stdout == f"{installed / 'klamm' / modules[0]} encodes and decodes\n", tried.stderr


def test_a_build_that_must_have_the_core_fails_without_a_compiler(tree: pathlib.Path) -> None:
    done = build(tree, KLAMM_CORE="compiled", CC="/nonexistent/cc")
    assert done.returncode != 0
    assert "KLAMM_CORE=compiled, but klamm/_core.pyx was not compiled" in done.stderr
    assert not list(tree.glob("dist/*.whl"))


def test_a_build_without_a_compiler_is_pure_python(tree: pathlib.Path) -> None:
    done = build(tree, KLAMM_CORE="auto", CC="/nonexistent/cc")
    assert done.returncode == 0, done.stderr
    (wheel,) = (tree / "dist").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.startswith("klamm/_core.c")]


def test_the_client_is_imported_where_a_process_cannot_fork(tmp_path: pathlib.Path) -> None:
    """Windows has neither function."""
    script = (
        "import os; del os.fork, os.register_at_fork\n"
        "import klamm; print(klamm.Producer, klamm.AsyncProducer, klamm.Consumer, klamm.AsyncConsumer, klamm.Admin)"
    )
    done = run([sys.executable, "-c", script], tmp_path)
    assert done.returncode == 0, done.stderr

"""An engine, the image, and the cluster of deploy/compose.yaml, for `make compose-test`."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from compose_cluster import NEXT_IMAGE, ComposeCluster
from docker_engine import NoEngineError, docker, running_engine

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = "klamm-test"
BASE = "klamm-base"
NOT_OURS = "BASE"
"""An environment variable: an image to build from, instead of one made of Debian's packages."""


@pytest.fixture(scope="session")
def base_image() -> Iterator[str]:
    """An engine runs, and the image `klamm` is built; gives the name of what it was built from."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(running_engine())
        except NoEngineError as error:
            print(f"\nno cluster in containers: {error}")
            pytest.skip(str(error))
        base = os.environ.get(NOT_OURS, BASE)
        if base == BASE:
            _timed("base image", [str(ROOT / "deploy" / "base" / "build.sh"), BASE])
        _timed("wheels", ["sh", str(ROOT / "deploy" / "wheels.sh")])
        _build("server", "klamm", base)
        label = "FROM klamm\nLABEL org.opencontainers.image.version=next\n"
        docker("build", "--quiet", "--tag", NEXT_IMAGE, "-", stdin=label)
        try:
            yield base
        finally:
            docker("system", "prune", "--force", "--volumes", "--filter", f"label=com.docker.compose.project={PROJECT}")


@pytest.fixture(scope="session")
def spark_image(base_image: str) -> str:
    """The image `klamm-spark` is built; gives the name of what it was built from."""
    _timed("wheels of Spark", ["sh", str(ROOT / "deploy" / "wheels.sh"), "server", "build", "spark"])
    _build("spark", "klamm-spark", base_image)
    return base_image


@pytest.fixture(scope="session")
def prometheus_image(base_image: str) -> str:
    """An image of Prometheus, made of Debian's packages."""
    _timed("image klamm-prometheus", [str(ROOT / "deploy" / "base" / "prometheus.sh")])
    return "klamm-prometheus"


@pytest.fixture(scope="session")
def cluster(base_image: str) -> Iterator[ComposeCluster]:
    """Not started; nothing is left of it."""
    cluster = ComposeCluster(PROJECT, base_image)
    try:
        yield cluster
    finally:
        cluster.close()


def _build(target: str, image: str, base: str) -> None:
    command = ["docker", "build", "--quiet", "--file", "deploy/Dockerfile", "--target", target, "--tag", image]
    _timed(f"image {image}", [*command, "--build-arg", f"BASE={base}", "."])
    print(f"image {image}: {int(docker('image', 'inspect', '--format', '{{.Size}}', image)) / 1e6:.0f} MB")


def _timed(name: str, command: list[str]) -> None:
    begin_s = time.monotonic()
    environment = {**os.environ, "DOCKER_BUILDKIT": "0", "PYTHON": sys.executable}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    print(f"\n{name}: {time.monotonic() - begin_s:.0f} s")

"""An engine, the image, and the cluster of deploy/compose.yaml, for `make compose-test`."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from docker import DockerClient

from tests.compose.compose_cluster import NEXT_IMAGE, ComposeCluster
from tests.compose.docker_engine import NoEngineError, running_engine

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = "klamm-test"
BASE = "klamm-base"
BUILD_BASE = "klamm-build-base"
NOT_OURS = "BASE"
"""An environment variable: an image to build from, instead of one made of Debian's packages."""


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerClient]:
    """The Docker engine, or the reason why there is none."""
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(running_engine())
        except NoEngineError as error:
            print(f"\nno cluster in containers: {error}")
            pytest.skip(str(error))
        yield client


@pytest.fixture(scope="session")
def base_image(engine: DockerClient) -> str:
    """Builds the image `klamm`, and returns the name of its base image."""
    base = os.environ.get(NOT_OURS, BASE)
    if base == BASE:
        build = str(ROOT / "deploy" / "base" / "build.sh")
        _run("base image", [build, BASE])
        _run("base image of the build", [build, BUILD_BASE, "python3-dev", "libstdc++6", "gcc", "libc6-dev"])
    _run("wheels", ["sh", str(ROOT / "deploy" / "wheels.sh")])
    _build(engine, "server", "klamm", base)
    label = b"FROM klamm\nLABEL org.opencontainers.image.version=next\n"
    engine.images.build(fileobj=io.BytesIO(label), tag=NEXT_IMAGE, rm=True)
    return base


@pytest.fixture(scope="session")
def spark_image(engine: DockerClient, base_image: str) -> str:
    """Builds the image `klamm-spark`, and returns the name of its base image."""
    _run("wheels of Spark", ["sh", str(ROOT / "deploy" / "wheels.sh"), "server", "build", "spark"])
    _build(engine, "spark", "klamm-spark", base_image)
    return base_image


@pytest.fixture(scope="session")
def prometheus_image(base_image: str) -> str:
    """An image of Prometheus, made of Debian's packages."""
    _run("image klamm-prometheus", [str(ROOT / "deploy" / "base" / "prometheus.sh")])
    return "klamm-prometheus"


@pytest.fixture(scope="session")
def cluster(engine: DockerClient, base_image: str) -> Iterator[ComposeCluster]:
    """The cluster of the profile `cluster`, whose containers are healthy. Nothing is left of it."""
    cluster = ComposeCluster(engine, PROJECT, base_image)
    try:
        with _timed("containers healthy"):
            cluster.start()
        yield cluster
    finally:
        cluster.close()


def _build(engine: DockerClient, target: str, image: str, base: str) -> None:
    bases = {"BASE": base, "BUILD_BASE": BUILD_BASE if base == BASE else base}
    with _timed(f"image {image}"):
        built, _ = engine.images.build(
            path=str(ROOT), dockerfile="deploy/Dockerfile", target=target, tag=image, buildargs=bases, rm=True
        )
    print(f"image {image}: {built.attrs['Size'] / 1e6:.0f} MB")


def _run(name: str, command: list[str]) -> None:
    environment = {**os.environ, "DOCKER_BUILDKIT": "0", "PYTHON": sys.executable}
    with _timed(name):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


@contextlib.contextmanager
def _timed(name: str) -> Iterator[None]:
    begin_s = time.monotonic()
    yield
    print(f"\n{name}: {time.monotonic() - begin_s:.0f} s")

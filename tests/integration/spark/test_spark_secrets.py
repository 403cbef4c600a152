"""Tests passwords of Spark's readers and writers: the servers accept them, and Spark shows them nowhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from klamm import Admin, NewTopic
from klamm.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from klamm.errors import AuthenticationError
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.ports import free_ports
from tests.support.spark_secrets import ROWS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

CANARY = "canary-s3cret"
USER = "alice"
ROOT = Path(__file__).resolve().parents[3]


def client(bootstrap: str, password: str = CANARY) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
    }


def logs_in(bootstrap: str) -> bool:
    try:
        with Admin(client(bootstrap)) as admin:
            admin.list_topics()
    except AuthenticationError:
        return False
    return True


def found(directory: Path) -> list[str]:
    """Returns the files that contain a password, even a wrong one."""
    return [
        str(path) for path in sorted(directory.rglob("*")) if path.is_file() and b"canary" in path.read_bytes().lower()
    ]


def run(directory: Path, cluster: KlammProcess, bootstrap: str) -> str:
    """Runs the program. Returns everything that it printed."""
    directory.mkdir()
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in client(bootstrap).items()))

    def options(password: str) -> dict[str, str]:
        return {f"kafka.{name}": text for name, text in client(bootstrap, password).items()}

    given = {"given": options(CANARY), "wrong": options("canary-guess"), "file": {"clientConfigFile": str(file)}}
    (directory / "options.json").write_text(json.dumps(given))
    command = [sys.executable, "-m", "tests.support.spark_secrets", str(directory)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    shown = ended.stdout + ended.stderr
    assert ended.returncode == 0, shown[-5000:]
    file.unlink()
    (directory / "options.json").unlink()
    return shown


def test_no_output_log_or_file_of_spark_contains_a_password(tmp_path: Path) -> None:
    inside, outside = free_ports(range(2))
    bootstrap = f"127.0.0.1:{outside}"
    settings = {"listeners": f"GRPC://127.0.0.1:{inside},GRPC_SASL_PLAINTEXT://{bootstrap}"}
    with running_cluster(tmp_path / "cluster", settings, port=inside) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("rows", 2), NewTopic("copies", 2)])
            info = ScramCredentialInfo(ScramMechanism.SHA_256, 4096)
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, info, CANARY)])
        wait_until(lambda: logs_in(bootstrap))
        shown = run(tmp_path / "spark", cluster, bootstrap)
    assert [line for line in shown.splitlines() if line.startswith(("count ", "copied "))] == [
        f"count {ROWS}",
        f"copied {ROWS}",
        f"count {2 * ROWS}",
        f"copied {3 * ROWS}",
    ]
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in shown
    # The searched texts and files exist.
    assert "spark.redaction.regex" in shown
    assert any((tmp_path / "spark" / "events").rglob("*"))
    assert any((tmp_path / "spark" / "checkpoint-given").rglob("*"))
    assert "canary" not in shown.lower()
    assert found(tmp_path) == []

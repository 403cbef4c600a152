"""Tests Spark's readers and writers on a cluster with TLS: `kafka.ssl.*` must reach driver and workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm import Admin, NewTopic
from tests.support.certificates import client, server, write_stores
from tests.support.klamm_process import running_cluster
from tests.support.ports import free_port

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_rows_are_written_and_read_over_tls(spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stores, mine = write_stores(tmp_path / "server", server()), write_stores(tmp_path / "client", client())
    (tmp_path / "client" / "keystore.pem").write_text(
        client().certificate_pem + client().encrypted_key_pem("very-s3cret")
    )
    port = free_port()
    settings = {"listeners": f"GRPC_SSL://localhost:{port}", "ssl.client.auth": "required", **stores.settings()}
    given = {"security.protocol": "SSL", "ssl.key.password": "very-s3cret", **mine.settings()}
    with running_cluster(tmp_path, settings, port=port):
        with Admin({"bootstrap.servers": f"localhost:{port}", **given}) as admin:
            admin.create_topics([NewTopic("rows", 2)])
        options = {
            "kafka.bootstrap.servers": f"localhost:{port}",
            **{f"kafka.{name}": text for name, text in given.items()},
        }
        rows = spark.range(500).selectExpr("cast(id as string) as key", "cast(id * 2 as string) as value")
        rows.write.format("klamm").options(**options, topic="rows").mode("append").save()
        read = spark.read.format("klamm").options(**options, subscribe="rows").load()
        read.explain("extended")
        values = {(int(row.key), int(row.value)) for row in read.select("key", "value").collect()}

        without = {name: text for name, text in options.items() if "keystore" not in name and "key." not in name}
        nobody = spark.read.format("klamm").options(**without, subscribe="rows")
        with pytest.raises(Exception, match="it requires a certificate of its clients"):
            nobody.load().collect()

    assert values == {(number, 2 * number) for number in range(500)}
    assert "very-s3cret" not in "".join(capfd.readouterr())

"""`klamm pipeline run` checks the cluster and the topics before it starts Spark."""

from __future__ import annotations

import pytest

from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster
from tests.support.ports import free_port

FAILED, USAGE, UNREACHABLE = 1, 2, 3

pytestmark = pytest.mark.usefixtures("klamm")
"""Starts the shared cluster before the check of leftovers, which must not find it."""


@pytest.fixture
def no_spark(monkeypatch):
    """Makes the test fail if Spark is started."""

    def start(*arguments: object) -> None:
        raise AssertionError(f"Spark was to be started: {arguments}")

    monkeypatch.setattr("klamm_pipelines.session.open_session", start)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("flight_delays", "--input", "missing"),
            "no topic 'missing' (--input); `klamm topics create missing`",
        ),
        (
            ("archive", "--topics", "missing,gone", "--archive", "/x"),
            "'missing' (--topics), 'gone' (--topics)",
        ),
        (("enrich",), "'flights' (--flights), 'weather' (--weather), 'planes' (--planes)"),
        (
            ("dedup_and_dead_letter", "--input", "missing", "--output", "o", "--dead-letter", "d"),
            "there is no topic 'missing' (--input)",  # the brokers create the other topics
        ),
    ],
)
def test_a_pipeline_without_its_topics_says_so_before_spark_starts(klamm, tmp_path, arguments, complaint):
    line = klamm.refused(FAILED, "pipeline", "run", *arguments, "--checkpoint", tmp_path)
    assert complaint in line
    assert "Error" not in line


@pytest.mark.usefixtures("no_spark")
def test_a_pipeline_needs_its_output_topics_if_auto_creation_is_off(tmp_path):
    with running_cluster(tmp_path / "cluster", {"auto.create.topics.enable": "false"}) as cluster:
        strict = KlammCommand(cluster.bootstrap)
        strict.ok("topics", "create", "departures")
        arguments = ("flight_delays", "--input", "departures", "--output", "figures", "--checkpoint", tmp_path)
        assert "no topic 'figures' (--output)" in strict.refused(FAILED, "pipeline", "run", *arguments)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("pipeline", ["flight_delays", "replay", "mirror"])
def test_a_pipeline_without_its_cluster_says_so_before_spark_starts(klamm, tmp_path, pipeline):
    address = f"127.0.0.1:{free_port()}"
    arguments = {
        "flight_delays": ("--checkpoint", tmp_path),
        "replay": ("--archive", tmp_path, "--topic", "t", "--to", "u"),
        "mirror": ("--topics", "t", "--target-bootstrap", klamm.bootstrap, "--checkpoint", tmp_path),
    }[pipeline]
    line = klamm.refused(UNREACHABLE, "pipeline", "run", pipeline, "--bootstrap", address, *arguments)
    assert f"no server answers at --bootstrap {address} (Connection refused)" in line


@pytest.mark.usefixtures("no_spark")
def test_a_mirror_checks_its_topics_groups_and_target_before_spark_starts(klamm, topic, tmp_path):
    def refused(status, *arguments):
        return klamm.refused(status, "pipeline", "run", "mirror", "--checkpoint", tmp_path, *arguments)

    to_itself = ("--target-bootstrap", klamm.bootstrap)
    assert "--topics 'missing' matches no topic" in refused(USAGE, "--topics", "missing", *to_itself)
    assert "--groups 'missing' matches no group" in refused(USAGE, "--topics", topic, "--groups", "missing", *to_itself)
    address = f"127.0.0.1:{free_port()}"
    line = refused(UNREACHABLE, "--topics", topic, "--target-bootstrap", address)
    assert f"no server answers at --target-bootstrap {address}" in line

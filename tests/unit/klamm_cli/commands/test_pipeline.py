"""Tests `klamm pipeline`, as far as it needs no Spark."""

from __future__ import annotations

import pytest

from klamm_pipelines.catalog import PIPELINES
from tests.support.cli_runner import KlammCommand

klamm = KlammCommand("127.0.0.1:1")


def test_every_pipeline_is_listed_with_a_line():
    listed = {each["pipeline"]: each["what it does"] for each in klamm.ok("pipeline", "list", "--json").document}
    assert list(listed) == list(PIPELINES)
    assert all(text.endswith(".") and len(text) < 120 for text in listed.values())


@pytest.mark.parametrize("name", PIPELINES)
def test_the_help_of_a_pipeline_has_its_summary_and_options(name):
    ended = klamm("pipeline", "run", name, "--help")
    assert ended.status == 0
    assert PIPELINES[name].summary in " ".join(ended.out.split())
    assert "--bootstrap" in ended.out


def test_an_unknown_pipeline_is_refused_by_name():
    assert "'fly'" in klamm.refused(2, "pipeline", "run", "fly")


def test_a_setting_without_a_value_is_named(tmp_path):
    arguments = ("flight_delays", "--checkpoint", tmp_path, "--conf", "spark.ui.enabled")
    assert "--conf 'spark.ui.enabled': expected NAME=VALUE" in klamm.refused(2, "pipeline", "run", *arguments)

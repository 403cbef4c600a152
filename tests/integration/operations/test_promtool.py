"""deploy/monitoring: promtool accepts the configuration and the rules, and tries each alert.

`tests/unit/deploy/test_monitoring.py` has the checks that need no program."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.waiting import patience

PROMETHEUS = Path(__file__).resolve().parents[3] / "deploy" / "monitoring" / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))


def promtool(*arguments: str | Path) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not there; it comes with Debian's package prometheus")
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=patience(), check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_promtool_takes_the_configuration_and_the_rules() -> None:
    assert f"{len(RULES)} rule files found" in promtool("check", "config", PROMETHEUS / "prometheus.yml")
    promtool("check", "rules", *RULES)


def test_scrape_targets_are_labelled_with_their_host_names(tmp_path: Path) -> None:
    """The servers of the profile `small` are watched, too. DNS gives their addresses."""
    config, *others = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    assert all(other["relabel_configs"] == config["relabel_configs"] for other in others)
    (looked_up,) = config.pop("dns_sd_configs")
    (name,) = looked_up["names"]
    config["static_configs"].append({"targets": ["192.0.2.7:9404"], "labels": {"__meta_dns_name": name}})
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump({"scrape_configs": [config]}))
    found = json.loads(promtool("check", "service-discovery", "--timeout=1s", path, config["job_name"]))
    named = {(one["labels"]["cluster"], one["labels"]["instance"], one["labels"]["__address__"]) for one in found}
    static = {("cluster", target.partition(":")[0], target) for target in config["static_configs"][0]["targets"]}
    assert named == static | {("small", name, "192.0.2.7:9404")}


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_each_alert_passes_its_promtool_tests(path: Path) -> None:
    promtool("test", "rules", PROMETHEUS / "tests" / path.name)

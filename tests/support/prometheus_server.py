"""A real Prometheus (Debian's package) with the rules of deploy/monitoring, for tests of these rules."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from tests.support.ports import free_port
from tests.support.waiting import patience, wait_until

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "monitoring" / "prometheus"
SCRAPE_S = 1

T = TypeVar("T")


class Sample(NamedTuple):
    """One sample of an answer to an instant query."""

    labels: dict[str, str]
    value: float


class PrometheusApi:
    """The API of a Prometheus server at `address` (host:port)."""

    def __init__(self, address: str) -> None:
        self._address = address

    def is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=patience()).close()
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def ask(self, expression: str) -> list[Sample]:
        """Returns the series of an instant query, or one sample without labels for a scalar. Raises AssertionError with
        Prometheus' message if the query is invalid."""
        answer = self._get("query", {"query": expression})
        if answer["resultType"] == "scalar":
            return [Sample({}, float(answer["result"][1]))]
        return [Sample(one["metric"], float(one["value"][1])) for one in answer["result"]]

    def one(self, expression: str) -> float | None:
        """Returns the value of the only series, or None if there is none."""
        samples = self.ask(expression)
        assert len(samples) <= 1, samples
        return samples[0].value if samples else None

    def rules(self) -> list[dict[str, Any]]:
        """Returns the rules with their health and state."""
        return [rule for group in self._get("rules", {})["groups"] for rule in group["rules"]]

    def until(self, ask: Callable[[], T], expected: T, timeout_s: float | None = None) -> T:
        """Returns the answer of `ask()` as soon as it equals `expected`, or the last answer after the time-out. A busy
        machine may miss a scrape."""
        until_s = time.monotonic() + (patience() if timeout_s is None else timeout_s)
        while (found := ask()) != expected and time.monotonic() < until_s:
            time.sleep(SCRAPE_S / 2)
        return found

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=patience()) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error


class PrometheusServer(PrometheusApi):
    """A server that scrapes `targets` (addresses and instance names, by job) every second."""

    def __init__(self, program: str, directory: Path, targets: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(f"127.0.0.1:{free_port()}")
        self._target_count = sum(map(len, targets.values()))
        self._log_path = directory / "prometheus.log"
        config_path = directory / "prometheus.yml"
        config_path.write_text(yaml.safe_dump(_config(targets)))
        self._command = [
            program,
            f"--config.file={config_path}",
            f"--storage.tsdb.path={directory / 'tsdb'}",
            f"--web.listen-address={self._address}",
            "--log.level=warn",
        ]

    def start(self) -> None:
        """Starts the server, and returns when it answers."""
        with self._log_path.open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(lambda: self.is_ready() or self._process.poll() is not None, self._log_path.read_text)
        assert self._process.poll() is None, self._log_path.read_text()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(patience())

    def wait_scraped(self) -> None:
        """Waits until every target was scraped after this call, and has answered. A busy target may miss a scrape, and
        `up` has no sample of a target that was never scraped. `timestamp` gives the time of a sample only for a bare
        series."""
        self._wait(f"count(timestamp(up) > {time.time()} and up == 1) == {self._target_count}")

    def wait_evaluated(self) -> None:
        """Waits until every rule has seen the samples that exist before this call. Rules that use other rules are
        evaluated after them."""
        now_s = time.time()

        def evaluated() -> bool:
            return all(datetime.fromisoformat(rule["lastEvaluation"]).timestamp() > now_s for rule in self.rules())

        wait_until(evaluated, self.rules, pause_s=0.1)

    def _wait(self, expression: str) -> None:
        """Waits until the expression has a series."""
        wait_until(lambda: self.ask(expression), lambda: f"{expression} is never true: {self.ask('up')}", pause_s=0.1)


def _config(targets: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Returns the deployed configuration, with an interval of one second and other addresses."""
    deployed = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text())
    assert {job["job_name"] for job in deployed["scrape_configs"]} == set(targets)
    every_second = f"{SCRAPE_S}s"
    return {
        "global": {
            "scrape_interval": every_second,
            "scrape_timeout": every_second,
            "evaluation_interval": every_second,
        },
        "rule_files": [str(DEPLOYED / path) for path in deployed["rule_files"]],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [
                    {"targets": [address], "labels": {"cluster": "cluster", "instance": instance}}
                    for address, instance in named.items()
                ],
            }
            for job, named in targets.items()
        ],
    }

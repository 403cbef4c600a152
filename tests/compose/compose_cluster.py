"""The cluster of deploy/compose.yaml, as the workload "partitions" of tests/chaos strikes it: by container."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from docker_engine import docker
from klammchaos.means import Means
from klammchaos.partition_cluster import BROKERS, CONTROLLERS, DEADLINE_S, PartitionCluster
from klammchaos.surroundings import Surroundings

from klamm.health import ProbeError, check

COMPOSE_FILE: Final = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "compose.yaml"
COORDINATORS: Final = (201, 202)
SERVICES: Final = {
    **{node: f"controller-{number}" for number, node in enumerate(CONTROLLERS, 1)},
    **{node: f"broker-{number}" for number, node in enumerate(BROKERS, 1)},
    **{node: f"coordinator-{number}" for number, node in enumerate(COORDINATORS, 1)},
}
SMALL_SERVICES: Final = {1: "small-broker", 101: "small-controller", 201: "small-coordinator"}
NEXT_IMAGE: Final = "klamm:next"
"""The same with another label, which is what a later version is to compose."""
BOOTSTRAP: Final = "localhost:9094,localhost:9095,localhost:9096"


class ComposeCluster(PartitionCluster):
    """Made by `compose up`; whatever it has is gone when it is closed."""

    def __init__(
        self,
        project: str,
        base: str,
        profile: str = "cluster",
        services: Mapping[int, str] = SERVICES,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.surroundings = Surroundings(())
        self.surroundings.missing.clear()
        self.bootstrap = BOOTSTRAP
        self.project = project
        self.used_memory: dict[str, str] = {}
        """What each container took of its limit when the load had ended."""
        self._services = services
        # The engine of Debian builds without buildx, which newer commands would use.
        self._environment = {"DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}
        self._environment |= {"BASE": base, "COMPOSE_PROFILES": profile, **(variables or {})}
        self._may_be_down: set[int] = set()
        self._started: dict[int, str] = {}
        """When each was started last, by Docker."""

    @property
    def means(self) -> frozenset[Means]:
        return frozenset({Means.ABSENCE})

    # compose

    def compose(self, *arguments: str) -> str:
        """What it prints. Raises AssertionError with its complaint when it fails."""
        has_plugin = subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
        command = ["docker", "compose"] if has_plugin else [shutil.which("docker-compose") or "docker-compose"]
        command += ["--project-name", self.project, "--file", str(COMPOSE_FILE)]
        environment = {**os.environ, **self._environment}
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self) -> None:
        """Returns when all are healthy, as Docker sees it."""
        self.compose("up", "--detach", "--no-build")
        self._wait_healthy()
        self._note_started()

    def down(self) -> None:
        """Stops and removes the containers; the volumes stay."""
        self.compose("down", "--timeout", "30")

    def close(self) -> None:
        self.compose("down", "--volumes", "--timeout", "1")

    def replace_volume(self, broker: int) -> None:
        """The broker comes back with nothing."""
        self._may_be_down.add(broker)
        docker("rm", "--force", self.container(broker))
        docker("volume", "rm", self._volume(broker))
        self.compose("up", "--detach", "--no-build", "--no-deps", self._services[broker])

    # Containers

    def container(self, node: int) -> str:
        """Its id."""
        return self.container_of(self._services[node])

    def container_of(self, service: str) -> str:
        """The id of a service's container."""
        labels = {"project": self.project, "service": service}
        filters = [f"--filter=label=com.docker.compose.{name}={value}" for name, value in labels.items()]
        return docker("ps", "--all", "--quiet", "--no-trunc", *filters)

    def kill(self, nodes: Iterable[int]) -> None:
        victims = [node for node in nodes if self._state(node)["Running"]]
        self._may_be_down.update(victims)
        docker("kill", *map(self.container, victims))

    def stop(self, node: int) -> None:
        self._may_be_down.add(node)
        docker("stop", "--time", "30", self.container(node))
        state = self._state(node)
        assert state["ExitCode"] == 0, f"{self._services[node]} ended with {state}:\n{self._log_end(node)}"

    def restart(self, nodes: Iterable[int]) -> None:
        docker("start", *map(self.container, nodes))

    def upgrade(self, node: int, image: str) -> None:
        """The server goes on in a container of another image, on its volume."""
        self.stop(node)
        self._environment["IMAGE"] = image
        self.compose("up", "--detach", "--no-build", "--no-deps", self._services[node])
        assert self._inspect(node)["Config"]["Image"] == image

    @contextlib.contextmanager
    def frozen(self, nodes: Iterable[int]) -> Iterator[None]:
        victims = [self.container(node) for node in nodes]
        docker("pause", *victims)
        try:
            yield
        finally:
            docker("unpause", *victims)

    @contextlib.contextmanager
    def disconnected(self, node: int) -> Iterator[None]:
        """Its cable is out, of the network that it shares with everybody."""
        container, network = self.container(node), f"{self.project}_default"
        docker("network", "disconnect", network, container)
        try:
            yield
        finally:
            docker("network", "connect", "--alias", self._services[node], network, container)

    def stop_brokers(self) -> None:
        self.used_memory = self.memory()
        self.check_memory()
        for broker in BROKERS:
            self.stop(broker)

    def log_dir(self, broker: int) -> pathlib.Path:
        (volume,) = json.loads(docker("volume", "inspect", self._volume(broker)))
        return pathlib.Path(volume["Mountpoint"]) / "broker"

    async def wait_up(self) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while not await asyncio.to_thread(self._all_serve):
            assert time.monotonic() < until_s, f"not all serve: {self.health()}"
            await asyncio.sleep(0.1)
        self._may_be_down.clear()
        self._note_started()

    def check_running(self) -> None:
        for node, started in self._started.items():
            if node not in self._may_be_down:
                state = self._state(node)
                assert state["Running"], f"{self._services[node]} ended by itself: {state}:\n{self._log_end(node)}"
                assert state["StartedAt"] == started, (
                    f"{self._services[node]} was started again:\n{self._log_end(node)}"
                )

    # What Docker says

    def health(self) -> dict[str, str]:
        """By service."""
        return {service: self._state(node)["Health"]["Status"] for node, service in self._services.items()}

    def memory(self) -> dict[str, str]:
        """What each container takes of its limit, by service."""
        used = {}
        for node, service in self._services.items():
            used[service] = docker("stats", "--no-stream", "--format", "{{.MemUsage}}", self.container(node))
        return used

    def check_memory(self) -> None:
        """Raises AssertionError when somebody was killed for reaching its limit."""
        killed = [service for node, service in self._services.items() if self._state(node)["OOMKilled"]]
        assert not killed, f"out of memory: {killed}"

    def exec(self, node: int, command: str) -> str:
        """What a shell command prints in that container."""
        return docker("exec", self.container(node), "sh", "-c", command)

    def _wait_healthy(self) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while set((health := self.health()).values()) != {"healthy"}:
            assert time.monotonic() < until_s, f"{health}:\n{self._log_end(next(iter(self._services)))}"
            time.sleep(0.2)

    def _all_serve(self) -> bool:
        """Without waiting for Docker's next probe."""
        for node in self._services:
            address = self._address(node)
            port = json.loads(docker("inspect", self.container(node)))[0]["Config"]["Healthcheck"]["Test"][2]
            try:
                if not address or check(address, int(port.rpartition(":")[2]), timeout_s=5) != "SERVING":
                    return False
            except (OSError, ProbeError):
                return False
        return True

    def _note_started(self) -> None:
        self._started = {node: self._state(node)["StartedAt"] for node in self._services}

    def _inspect(self, node: int) -> dict[str, Any]:
        (described,) = json.loads(docker("inspect", self.container(node)))
        return dict(described)

    def _state(self, node: int) -> dict[str, Any]:
        return dict(self._inspect(node)["State"])

    def _address(self, node: int) -> str:
        networks = self._inspect(node)["NetworkSettings"]["Networks"]
        return str(networks[f"{self.project}_default"]["IPAddress"]) if networks else ""

    def _volume(self, broker: int) -> str:
        return f"{self.project}_{self._services[broker]}"

    def _log_end(self, node: int) -> str:
        return docker("logs", "--tail", "30", self.container(node), check=False)

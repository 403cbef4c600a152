"""The cluster of deploy/compose.yaml, as the workload "partitions" of tests/chaos strikes it: by container."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from docker import DockerClient
from docker.models.containers import Container
from docker.models.volumes import Volume

from klamm.health import ProbeError, check
from tests.chaos.klammchaos.means import Means
from tests.chaos.klammchaos.partition_cluster import BROKERS, CONTROLLERS, DEADLINE_S, PartitionCluster
from tests.chaos.klammchaos.surroundings import Surroundings

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
STOP_S: Final = 30
BOOTSTRAP: Final = "localhost:9094,localhost:9095,localhost:9096"


class ComposeCluster(PartitionCluster):
    """The cluster of `compose up`. Its containers and volumes are removed when it is closed."""

    def __init__(
        self,
        engine: DockerClient,
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
        self.engine = engine
        self.project = project
        self.used_memory: dict[str, str] = {}
        """The part of its memory limit that each container used when the load had ended."""
        self._services = services
        # The engine of Debian builds without buildx, which newer commands would use.
        self._environment = {"DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}
        self._environment |= {"BASE": base, "COMPOSE_PROFILES": profile, **(variables or {})}
        self._may_be_down: set[int] = set()
        self._started: dict[int, str] = {}
        """The time of the last start of each container, from Docker."""

    @property
    def means(self) -> frozenset[Means]:
        return frozenset({Means.ABSENCE})

    # compose

    def compose(self, *arguments: str) -> str:
        """Returns the output of the command. Raises AssertionError with its error output if it fails."""
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
        """Stops and removes the containers. The volumes stay."""
        self.compose("down", "--timeout", str(STOP_S))

    def close(self) -> None:
        self.compose("down", "--volumes", "--timeout", "1")

    def replace_volume(self, broker: int) -> None:
        """Replaces the broker's volume by an empty one, and starts the broker again."""
        self._may_be_down.add(broker)
        self.container(broker).remove(force=True)
        self._volume(broker).remove()
        self.compose("up", "--detach", "--no-build", "--no-deps", self._services[broker])

    # Containers

    def container(self, node: int) -> Container:
        """Returns the present container of the node."""
        return self.container_of(self._services[node])

    def container_of(self, service: str) -> Container:
        """Returns the present container of a service."""
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        (container,) = self.engine.containers.list(all=True, filters={"label": labels})
        return container

    def kill(self, nodes: Iterable[int]) -> None:
        victims = [node for node in nodes if self._state(node)["Running"]]
        self._may_be_down.update(victims)
        for node in victims:
            self.container(node).kill()

    def stop(self, node: int) -> None:
        self._may_be_down.add(node)
        self.container(node).stop(timeout=STOP_S)
        state = self._state(node)
        assert state["ExitCode"] == 0, f"{self._services[node]} ended with {state}:\n{self._log_end(node)}"

    def restart(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            self.container(node).start()

    def upgrade(self, node: int, image: str) -> None:
        """Replaces the server's container by one of another image, on the same volume."""
        self.stop(node)
        self._environment["IMAGE"] = image
        self.compose("up", "--detach", "--no-build", "--no-deps", self._services[node])
        assert self.container(node).attrs["Config"]["Image"] == image

    @contextlib.contextmanager
    def frozen(self, nodes: Iterable[int]) -> Iterator[None]:
        victims = [self.container(node) for node in nodes]
        for victim in victims:
            victim.pause()
        try:
            yield
        finally:
            for victim in victims:
                victim.unpause()

    @contextlib.contextmanager
    def disconnected(self, node: int) -> Iterator[None]:
        """Disconnects the node from the network that it shares with the others."""
        container, network = self.container(node), self.engine.networks.get(f"{self.project}_default")
        network.disconnect(container)
        try:
            yield
        finally:
            network.connect(container, aliases=[self._services[node]])

    def stop_brokers(self) -> None:
        self.used_memory = self.memory()
        self.check_memory()
        for broker in BROKERS:
            self.stop(broker)

    def log_dir(self, broker: int) -> pathlib.Path:
        return pathlib.Path(self._volume(broker).attrs["Mountpoint"]) / "broker"

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
        """The health of each service's container."""
        return {service: self._state(node)["Health"]["Status"] for node, service in self._services.items()}

    def memory(self) -> dict[str, str]:
        """Returns the part of its memory limit that each container uses, by service."""
        return {service: memory_of(self.container_of(service)) for service in self._services.values()}

    def check_memory(self) -> None:
        """Raises AssertionError if a container was killed because it reached its memory limit."""
        killed = [service for node, service in self._services.items() if self._state(node)["OOMKilled"]]
        assert not killed, f"out of memory: {killed}"

    def exec(self, node: int, command: str) -> str:
        """Returns the output of a shell command in that container. Raises AssertionError with its error output if it
        fails."""
        status, (out, complaint) = self.container(node).exec_run(["sh", "-c", command], demux=True)
        assert status == 0, f"{command}: {(complaint or b'').decode()}"
        return (out or b"").decode().strip()

    def _wait_healthy(self) -> None:
        labels = {"label": f"com.docker.compose.project={self.project}", "event": "health_status"}
        events = self.engine.events(decode=True, filters=labels)
        too_late = threading.Timer(DEADLINE_S, events.close)
        too_late.start()
        try:
            if not self._all_healthy():
                assert any(self._all_healthy() for _ in events), (
                    f"{self.health()}:\n{self._log_end(next(iter(self._services)))}"
                )
        finally:
            too_late.cancel()
            events.close()

    def _all_healthy(self) -> bool:
        return set(self.health().values()) == {"healthy"}

    def _all_serve(self) -> bool:
        """True if all servers answer a probe now. It does not wait for Docker's next probe."""
        for node in self._services:
            address = self._address(node)
            port = self.container(node).attrs["Config"]["Healthcheck"]["Test"][2]
            try:
                if not address or check(address, int(port.rpartition(":")[2]), timeout_s=5) != "SERVING":
                    return False
            except (OSError, ProbeError):
                return False
        return True

    def _note_started(self) -> None:
        self._started = {node: self._state(node)["StartedAt"] for node in self._services}

    def _state(self, node: int) -> dict[str, Any]:
        return dict(self.container(node).attrs["State"])

    def _address(self, node: int) -> str:
        networks = self.container(node).attrs["NetworkSettings"]["Networks"]
        return str(networks[f"{self.project}_default"]["IPAddress"]) if networks else ""

    def _volume(self, broker: int) -> Volume:
        return self.engine.volumes.get(f"{self.project}_{self._services[broker]}")

    def _log_end(self, node: int) -> str:
        return log_end(self.container(node))


def memory_of(container: Container) -> str:
    """Returns the part of its memory limit that the container uses. Pages of files that the kernel can drop are not
    counted."""
    memory = container.stats(stream=False, one_shot=True)["memory_stats"]
    used = memory["usage"] - memory["stats"].get("inactive_file", 0)
    return f"{used / 2**20:.0f} MiB of {memory['limit'] / 2**20:.0f} MiB"


def log_end(container: Container) -> str:
    """The last lines that it printed."""
    return str(container.logs(tail=50).decode(errors="replace"))

"""A coordinator as a process of its own, for tests that start, stop and kill it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.ports import free_port

HOST = "127.0.0.1"


class CoordinatorProcess:
    """A process of `python -m klamm_coordinator`, with the same port after each start."""

    def __init__(self, controller_port: int, log_path: Path, node_id: int = 1) -> None:
        self._log_path = log_path
        settings = {
            "node.id": str(node_id),
            "listeners": f"GRPC://{HOST}:{free_port()}",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "200",
            "broker.heartbeat.interval.ms": "100",
        }
        self._command = [sys.executable, "-m", "klamm_coordinator", "--die-with-parent"]
        for name, value in settings.items():
            self._command += ["--set", f"{name}={value}"]

    async def start(self) -> None:
        with self._log_path.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log
            )

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        self._process.terminate()
        return await self._process.wait()

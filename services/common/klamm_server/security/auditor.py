"""The audit of one server: `AuditTrail`, with the clock, and the tasks that bring its lines to their outputs.

If an output fails, the server retries it. Meanwhile its backlog fills. Lines beyond the backlog's bound are dropped and
counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import KlammError
from klamm_server.config.server_config import ServiceConfig
from klamm_server.metrics.instruments import counters
from klamm_server.runtime.clock import Clock
from klamm_server.security.audit.backlog import Backlog
from klamm_server.security.audit.decisions import SessionAudit
from klamm_server.security.audit.events import Activity, AuditEvent, Category
from klamm_server.security.audit.trail import AuditTrail
from klamm_server.security.audit_log import AuditLog
from klamm_server.security.authorizer_log import AuthorizerLog

log = logging.getLogger(__name__)

DROPPED: Final = counters(
    "klamm_audit_dropped", "Audit events that were dropped because the backlog of their output was full", ("output",)
)
CERTIFICATE: Final = "SSL"
"""The mechanism of clients that log in by certificate."""
BATCH_MAX_BYTES: Final = 512 * 1024
"""The maximum size of the lines of one write."""
INTERVAL_S: Final = 0.1
"""The time for which lines wait for others, in seconds."""
RETRY_S: Final = 1.0
CLOSING_S: Final = 5.0
"""The time limit for the last lines, in seconds."""


class AuditOutput(Protocol):
    """An output of the audit's lines."""

    async def write(self, lines: Sequence[bytes]) -> None:
        """Writes all lines. If it raises OSError or KlammError, the lines are written again later."""

    async def close(self) -> None:
        """Closes the output. No more lines follow."""


class _Feed:
    """The lines of one output."""

    def __init__(self, name: str, output: AuditOutput) -> None:
        self._name = name
        self._output = output
        self.backlog = Backlog(partial(_count_dropped, name))
        self._is_taking = asyncio.Lock()

    async def run(self) -> None:
        """Writes the lines to the output until it is cancelled."""
        is_failing = False
        while True:
            try:
                await self.write_all()
                is_failing = False
            except (OSError, KlammError) as error:
                if not is_failing:
                    waiting = len(self.backlog)
                    log.warning(
                        "could not write audit events, output=%s waiting_lines=%d: %s", self._name, waiting, error
                    )
                is_failing = True
            await asyncio.sleep(RETRY_S if is_failing else INTERVAL_S)

    async def write_all(self) -> None:
        """Writes until no line is left. Raises the output's errors."""
        async with self._is_taking:
            while lines := self.backlog.first(BATCH_MAX_BYTES):
                await self._output.write(lines)
                self.backlog.take_out(len(lines))

    async def close(self) -> None:
        if len(self.backlog):
            log.warning("the audit lost events, output=%s lines=%d", self._name, len(self.backlog))
        await self._output.close()


class Auditor:
    """The audit of one server. Run `run` until it is cancelled, then call `close`."""

    def __init__(self, config: ServiceConfig, node: str, clock: Clock, outputs: Mapping[str, AuditOutput]) -> None:
        self._feeds = [_Feed(name, output) for name, output in outputs.items()]
        self.trail = AuditTrail(config, node, [feed.backlog for feed in self._feeds])
        self.now_ms = clock.wall_ms

    def of_session(self, principal: str, host: str) -> SessionAudit | None:
        """Returns the audit of a principal's session at an address, or None if its decisions are not recorded."""
        if not self.trail.is_about(principal):
            return None
        return SessionAudit(self.trail, self.now_ms, principal, host)

    def logged_in(self, principal: str, host: str, mechanism: str, listener: str, failure: str = "") -> None:
        """Records a login, or with `failure` a login that failed for that reason.

        A login of an excluded principal is recorded only if it failed, because any client can claim to be that
        principal."""
        if not self.trail.wants(Category.AUTHENTICATION) or not (failure or self.trail.is_about(principal)):
            return
        event = AuditEvent(
            Category.AUTHENTICATION,
            Activity.LOGON,
            not failure,
            principal,
            host,
            mechanism=mechanism,
            listener=listener,
            detail=failure,
        )
        self.trail.record(event, self.now_ms())

    def refused_node(self, principal: str, host: str, api: str, refusal: str) -> None:
        """Records a call in which a server spoke for another server (`node.principals`)."""
        if self.trail.wants(Category.DENIED):
            event = AuditEvent(
                Category.DENIED,
                Activity.OTHER,
                False,
                principal,
                host,
                api=api,
                operation=AclOperation.CLUSTER_ACTION.name,
                resource_type=ResourceType.CLUSTER.name,
                resource_name=CLUSTER_NAME,
                rule="node.principals",
                detail=refusal,
            )
            self.trail.record(event, self.now_ms())

    async def run(self) -> None:
        """Writes lines to their outputs until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for feed in self._feeds:
                tasks.create_task(feed.run(), name="audit-output")
            while True:
                await asyncio.sleep(1)
                self.trail.end_minutes(self.now_ms())

    async def flush(self) -> None:
        """Reports all counted events, and writes what the outputs accept within a short time."""
        self.trail.close(self.now_ms())
        for feed in self._feeds:
            with contextlib.suppress(OSError, KlammError):
                async with asyncio.timeout(CLOSING_S):
                    await feed.write_all()

    async def close(self) -> None:
        """Writes the remaining lines like `flush`, and closes the outputs. Call this after `run`."""
        await self.flush()
        for feed in self._feeds:
            await feed.close()


def auditor_of(
    config: ServiceConfig, kind: str, clock: Clock, topic: Callable[[], AuditOutput] | None = None
) -> Auditor | None:
    """Returns the auditor that a server's settings describe, or None if they turn the audit off. `kind` is broker,
    controller or coordinator. `topic` makes the output to the audit's topic.

    Raises ConfigError where the file of the log cannot be written."""
    if not config.audit_enable:
        return None
    outputs: dict[str, AuditOutput] = {}
    if "log" in config.audit_output:
        outputs["log"] = AuditLog(config.audit_log_file)
    if "authorizer" in config.audit_output:
        outputs["authorizer"] = AuthorizerLog(config.audit_authorizer_log_file)
    if "topic" in config.audit_output and topic is not None:
        outputs["topic"] = topic()
    return Auditor(config, f"{kind}-{config.node_id}", clock, outputs)


def _count_dropped(output: str, count: int) -> None:
    DROPPED.labels(output).inc(count)

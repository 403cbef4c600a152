"""Measures what the audit costs a server: the CPU time for each audited decision, if each one is about another topic.

    python bench/audit.py [--decisions 20000] [--rounds 7]

A session is refused one topic after the other and never the same one twice. No decisions are therefore counted
together, and each of them is a line. Only an attacker behaves like this. A round has no audit, an audit that writes a
log, and one that writes to a topic, in a random order. The topic is in a `klamm up` beside it, whose own CPU time is
not counted. At 1,000 decisions a second, the share of a core in percent is a tenth of the microseconds for each. The
rows below are for a decision that is repeated: a topic that is allowed. By default it is not audited. With `produce` it
is audited once a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.turns import rounds
from klamm import Admin
from klamm.acls import AclOperation, ResourceType
from klamm.admin import NewTopic
from klamm.model import AUDIT_TOPIC
from klamm_server.config.server_config import ServiceConfig, load
from klamm_server.links.audit_topic import AuditTopic
from klamm_server.links.metadata_link import MetadataLink
from klamm_server.metadata.image import MetadataImage
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.grpc_server import GrpcServerTransport
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.garbage import collect_seldom
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.audit_log import AuditLog
from klamm_server.security.auditor import Auditor, AuditOutput
from klamm_server.security.session import Session
from tests.support.callers import ALICE, HOST, allow, index_of
from tests.support.klamm_process import running_cluster

CLOCK = SystemClock()
HOT = 200_000
"""Decisions of a round about the same topic."""


async def never(old: MetadataImage, new: MetadataImage) -> None:
    """Does nothing, because no listener waits for images."""


@asynccontextmanager
async def topic_of(bootstrap: str) -> AsyncIterator[AuditTopic]:
    """The topic of a cluster, as its servers write to it."""
    host, _, port = bootstrap.rpartition(":")
    transport = GrpcServerTransport()
    controllers = Controllers([(host, int(port))])
    own = load(ServiceConfig, {"node.id": "1"}).resolved_listeners().between_servers
    link = MetadataLink(transport, controllers, cluster_id="", on_image=never, clock=CLOCK, rng=random.Random())
    following = asyncio.create_task(link.run())
    await link.wait_for(lambda image: image.topic(AUDIT_TOPIC) is not None)
    topic = AuditTopic(transport, lambda: link.image, own, CLOCK)
    try:
        yield topic
    finally:
        await topic.close()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def session(auditor: Auditor | None) -> Session:
    """The session of a client that may write to `hot`, and to nothing else."""
    index = index_of([allow(AclOperation.WRITE, ResourceType.TOPIC, "hot")])
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    audit = None if auditor is None else auditor.of_session(ALICE, HOST)
    return Session(authorizer, lambda: index, ALICE, HOST, audit)


def auditor_to(events: str, **outputs: AuditOutput) -> Auditor:
    config = load(ServiceConfig, {"node.id": "1", "audit.enable": "true", "audit.events": events})
    return Auditor(config, "broker-1", CLOCK, outputs)


async def distinct_us(auditor: Auditor | None, decisions: int) -> float:
    """CPU of one decision after the other, each about another topic, in bursts of 100 as requests come."""
    asking = session(auditor)
    running = None if auditor is None else asyncio.create_task(auditor.run())
    began_s = time.process_time()
    for number in range(decisions):
        asking.may(AclOperation.WRITE, ResourceType.TOPIC, f"topic-{number}")
        if number % 100 == 99:
            await asyncio.sleep(0.01)
    if auditor is not None:
        await auditor.flush()
    took_s = time.process_time() - began_s
    if running is not None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return took_s / decisions * 1e6


def hot_us(auditor: Auditor | None) -> float:
    """CPU of a decision that was taken before."""
    asking = session(auditor)
    began_s = time.process_time()
    for _ in range(HOT):
        asking.may(AclOperation.WRITE, ResourceType.TOPIC, "hot")
    return (time.process_time() - began_s) / HOT * 1e6


async def run(decisions: int, round_count: int, directory: pathlib.Path, bootstrap: str) -> None:
    figures: dict[str, list[float]] = {name: [] for name in ("off", "log", "topic")}
    hot: dict[str, list[float]] = {name: [] for name in ("off", "told if refused", "told")}
    async with topic_of(bootstrap) as topic:
        for number, order in enumerate(rounds(list(figures), round_count)):
            log = AuditLog(str(directory / f"audit-{number}.log"))
            auditors = {
                "off": None,
                "log": auditor_to("authorization.denied", log=log),
                "topic": auditor_to("authorization.denied", topic=topic),
            }
            for name in order:
                figures[name].append(await distinct_us(auditors[name], decisions))
            await log.close()
        told = {"off": None, "told if refused": "authorization.denied", "told": "produce"}
        for order in rounds(list(hot), round_count):
            for name in order:
                events = told[name]
                hot[name].append(hot_us(None if events is None else auditor_to(events)))
    base = statistics.median(figures["off"])
    for name, found in figures.items():
        own = statistics.median(found) - base
        print(
            f"{name:6} {statistics.median(found):6.1f} us a decision ({min(found):.1f} to {max(found):.1f}),"
            f" at 1,000 a second {own / 10:+.2f} % of a core"
        )
    for name, found in hot.items():
        print(f"decided again, {name:15} {statistics.median(found):5.2f} us ({min(found):.2f} to {max(found):.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    # As servers do.
    collect_seldom()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        with running_cluster(directory / "cluster") as cluster:
            with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
                admin.create_topics([NewTopic(AUDIT_TOPIC)])
            asyncio.run(run(options.decisions, options.rounds, directory, cluster.bootstrap))


if __name__ == "__main__":
    main()

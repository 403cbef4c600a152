"""The loads of a simulated cluster, and the checks of what they saw. They are those of `tests/chaos`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from klamm import AsyncAdmin, NewTopic
from klamm.errors import ErrorCode, KlammError
from tests.chaos.klammchaos.admin_load import AdminClient
from tests.chaos.klammchaos.history import History as MetadataHistory
from tests.chaos.klammchaos.partition_cluster import PARTITIONS, TOPIC
from tests.chaos.klammchaos.partition_load import ConsumerClient, ProducerClient, read_everything
from tests.chaos.klammchaos.topic_model import TopicModel
from tests.chaos.klammchaos.transaction_checks import violations
from tests.chaos.klammchaos.transaction_load import (
    INPUT,
    Feeder,
    GroupProtocol,
    Observer,
    Worker,
    wait_until_processed,
)
from tests.support.linearizability import check_linearizable
from tests.support.log_checker import History, check, summary
from tests.world.cluster import PORTS, ClientRun, Cluster

RECORDS_TOPIC: Final = "records"
TOPICS: Final = (RECORDS_TOPIC, INPUT, TOPIC)
"""The topic of the records, the input of the transactions, and their output."""
__all__ = ["PARTITIONS", "RECORDS_TOPIC", "TOPICS", "Loads"]
PRODUCERS: Final = 2
WORKERS: Final = 2
ADMINS: Final = 2
RECORD_PAUSE_S: Final = 0.05
FEED_PAUSE_S: Final = 0.1
ADMIN_PAUSE_S: Final = 0.15
_CONFIGS: Final = {"segment.bytes": str(1 << 20), "segment.ms": "5000", "min.insync.replicas": "2"}


@dataclass
class Client:
    """A client of a load, and the event that ends it."""

    run: ClientRun
    stop: asyncio.Event


class Loads:
    """Producers and consumers, transactional workers, and administrators."""

    def __init__(self, cluster: Cluster, group_protocol: GroupProtocol) -> None:
        seed, bootstrap = cluster.world.seed, cluster.bootstrap_servers
        self._cluster = cluster
        self._settings = {"bootstrap.servers": bootstrap}
        self._producers = [
            ProducerClient(
                number,
                self._settings,
                random.Random(f"{seed}/producer/{number}"),
                mortal=number == 1,
                topic=RECORDS_TOPIC,
                pause_s=RECORD_PAUSE_S,
            )
            for number in range(PRODUCERS)
        ]
        self._consumer = ConsumerClient(self._settings, topic=RECORDS_TOPIC)
        self._feeder = Feeder(bootstrap, pause_s=FEED_PAUSE_S)
        self._workers = [
            Worker(number, bootstrap, random.Random(f"{seed}/worker/{number}"), group_protocol=group_protocol)
            for number in range(WORKERS)
        ]
        self._observer = Observer(bootstrap)
        self._history = MetadataHistory()
        self._addresses = [
            f"controller-{number + 1}:{PORTS['controller']}" for number in range(cluster.size.controllers)
        ]
        self._writers: list[Client] = []
        self._readers: list[Client] = []
        self._processors: list[Client] = []

    @property
    def runs(self) -> list[ClientRun]:
        return [client.run for client in (*self._writers, *self._readers, *self._processors)]

    @property
    def counts(self) -> dict[str, int]:
        """How much the loads have done."""
        return {
            "records": sum(len(producer.sends) for producer in self._producers),
            "transactions": sum(len(worker.fates) for worker in self._workers),
            "metadata operations": sum(map(len, self._history.operations.values())),
        }

    def begin(self) -> None:
        """Creates the topics and starts all clients."""
        self._cluster.finish(self._cluster.client("creator", _create, self._settings, self._cluster.size.brokers))
        for number, producer in enumerate(self._producers):
            self._writers.append(self._start(f"producer-{number}", producer.run))
        self._writers.append(self._start("feeder", self._feeder.run))
        for number in range(ADMINS):
            self._writers.append(self._start(f"admin-{number}", self._administrate, number))
        self._readers.append(self._start("consumer", self._consumer.run))
        for number, worker in enumerate(self._workers):
            self._processors.append(self._start(f"worker-{number}", worker.run))
        self._processors.append(self._start("observer", self._observer.run))

    def end(self) -> None:
        """Lets all clients finish their work. Raises their errors."""
        self._end(self._writers)
        self._end(self._readers)
        bootstrap = self._cluster.bootstrap_servers
        self._cluster.finish(self._cluster.client("processed", wait_until_processed, bootstrap))
        self._end(self._processors)

    def check(self) -> None:
        """Raises AssertionError for anything that the clients should not have seen."""
        self._check_records()
        self._check_transactions()
        self._check_metadata()

    def _check_records(self) -> None:
        reading = self._cluster.client("reader", read_everything, self._settings, RECORDS_TOPIC)
        self._cluster.finish(reading)
        sends = [send for producer in self._producers for send in producer.sends]
        anomalies = check(History(sends=sends, consumptions=self._consumer.consumptions, final=reading.result))
        assert not anomalies, f"records: {summary(anomalies)}"
        assert not self._consumer.led_astray, f"a consumer was led astray: {self._consumer.led_astray}"

    def _check_transactions(self) -> None:
        final = Observer(self._cluster.bootstrap_servers)
        ended = asyncio.Event()
        ended.set()
        self._cluster.finish(self._cluster.client("observer-2", final.run, ended))
        fates = {name: fate for worker in self._workers for name, fate in worker.fates.items()}
        found = violations(final.seen, self._observer.seen, fates, self._feeder.count)
        assert not found, f"transactions: {'; '.join(found)}"

    def _check_metadata(self) -> None:
        self._cluster.finish(self._cluster.client("admin-last", self._read_metadata))
        for name, operations in self._history.operations.items():
            # Without a live broker, a topic is refused for its replication factor. The model knows no brokers.
            decided = [operation for operation in operations if not _lacks_brokers(operation.result)]
            check_linearizable(name, decided, TopicModel(decided))

    def _start(self, name: str, program: Callable[..., Awaitable[Any]], *arguments: Any) -> Client:
        stop = asyncio.Event()
        return Client(self._cluster.client(name, program, *arguments, stop), stop)

    def _end(self, clients: list[Client]) -> None:
        for client in clients:
            client.stop.set()
        self._cluster.finish(*(client.run for client in clients))

    async def _administrate(self, number: int, stop: asyncio.Event) -> None:
        rng = random.Random(f"{self._cluster.world.seed}/admin/{number}")
        admin = AdminClient(f"a{number}", lambda: self._addresses, self._history, rng, pause_s=ADMIN_PAUSE_S)
        working, stopping = asyncio.create_task(admin.run()), asyncio.create_task(stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (working, stopping):
            task.cancel()
        ended = await asyncio.gather(working, stopping, return_exceptions=True)
        await admin.close()
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _read_metadata(self) -> None:
        rng = random.Random(f"{self._cluster.world.seed}/admin/last")
        admin = AdminClient("last", lambda: self._addresses, self._history, rng)
        async with AsyncAdmin(self._settings) as lister:
            topics = await lister.list_topics(include_internal=True)
        await admin.read_everything([name for name in topics if name in TOPICS or name.startswith("__")])
        await admin.close()


async def _create(settings: dict[str, str], brokers: int) -> None:
    """Creates the topics when all brokers are there."""
    async with AsyncAdmin(settings) as admin:
        while True:
            try:
                described = await admin.describe_cluster()
                if len([broker for broker in described.brokers if not broker.fenced]) == brokers:
                    break
            except KlammError:
                pass
            await asyncio.sleep(0.1)
        await admin.create_topics([NewTopic(name, PARTITIONS, min(3, brokers), configs=_CONFIGS) for name in TOPICS])


def _lacks_brokers(result: object) -> bool:
    return getattr(result, "code", None) is ErrorCode.INVALID_REPLICATION_FACTOR

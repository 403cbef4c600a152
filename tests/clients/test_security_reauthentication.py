"""Real clients write and read for a minute in sessions of five seconds, while the server's certificate changes.

Each client writes numbers with an idempotent producer and reads them back in a group. Every acknowledged number must be
there once, and be read. The printed table shows which client renews its session (KIP-368), and which one is cut off and
connects again. kcat is not among them. Its librdkafka renews no session, and kcat ends when the connections to all
brokers are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import socket
import ssl
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509
from kafka import KafkaConsumer, KafkaProducer

import klamm
from tests.support import certificates, java_programs
from tests.support.aiokafka_loop import run_aiokafka
from tests.support.klamm_process import running_cluster
from tests.support.ports import free_port
from tests.support.sasl_cluster import HOST, PASSWORD, SaslCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]
SESSION_MS = 5_000
LOAD_S = 60
ROTATION_S = 10
PAUSE_S = 0.01
"""The pause between two numbers of a client."""
TIMEOUT_S = 180
"""The longest wait for the remaining records after the minute is over."""
PARTITIONS = 3
CUT_OFF_MAX = 10
"""The number of times that a client that renews its sessions may be cut off, because the machine was too slow now and
then. A client that does not renew them has at least two connections, each of which is cut off twelve times."""
GOES_ON = "goes on for a minute in sessions of 5 s while certificates change"


class Party(ABC):
    """A client with a user of its own. `write` and `read` run at the same time, in a thread each."""

    name: str
    mechanism = "SCRAM-SHA-512"
    renews = False
    """True if the client logs in again over its connection before a session ends."""

    def __init__(self, cluster: ReauthenticatingCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.acknowledged: list[int] = []
        self.got: list[int] = []
        self.stop = threading.Event()
        """An event that ends the writing."""
        self.written = threading.Event()
        """An event that is set when all acknowledged numbers are known."""

    @abstractmethod
    def write(self) -> None:
        """Writes until `stop` is set and every record is acknowledged."""

    @abstractmethod
    def read(self) -> None:
        """Reads until `is_done`."""

    def is_done(self) -> bool:
        """True if the client has read every acknowledged number. It compares the numbers only after it has read enough
        of them."""
        return (
            self.written.is_set() and len(self.got) >= len(self.acknowledged) and set(self.acknowledged) <= {*self.got}
        )

    def numbers(self) -> Iterator[int]:
        """Yields the numbers to write, at the pace that all parties share."""
        for number in itertools.count():
            if self.stop.wait(PAUSE_S):
                return
            yield number


class Confluent(Party):
    name = "confluent-kafka"
    renews = True

    def settings(self) -> dict[str, Any]:
        return self.cluster.client(self.mechanism, user=self.name)

    def write(self) -> None:
        def delivered(error: KafkaError | None, record: Any) -> None:
            assert error is None, error
            self.acknowledged.append(int(record.value()))

        producer = Producer({**self.settings(), "enable.idempotence": True})
        for number in self.numbers():
            producer.produce(self.name, b"%d" % number, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0

    def read(self) -> None:
        consumer = Consumer({**self.settings(), "group.id": self.name, "auto.offset.reset": "earliest"})
        consumer.subscribe([self.name])
        while not self.is_done():
            for record in consumer.consume(500, 0.2):
                if record.error() is None:
                    self.got.append(int(record.value() or b""))
        consumer.close()


class Python(Party):
    name = "kafka-python"

    def settings(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.cluster.address("SASL_SSL"),
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.cluster.server.truststore),
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.name,
            "sasl_plain_password": PASSWORD,
        }

    def write(self) -> None:
        producer = KafkaProducer(**self.settings(), enable_idempotence=True, linger_ms=5)
        sent = [(number, producer.send(self.name, b"%d" % number)) for number in self.numbers()]
        producer.flush(TIMEOUT_S)
        self.acknowledged += [number for number, future in sent if future.get(TIMEOUT_S)]
        producer.close()

    def read(self) -> None:
        consumer = KafkaConsumer(self.name, **self.settings(), group_id=self.name, auto_offset_reset="earliest")
        while not self.is_done():
            for records in consumer.poll(200).values():
                self.got += [int(record.value) for record in records]
        consumer.close()


class Aiokafka(Party):
    name = "aiokafka"

    def settings(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.cluster.address("SASL_SSL"),
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(self.cluster.server.truststore)),
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.name,
            "sasl_plain_password": PASSWORD,
        }

    def write(self) -> None:
        async def story() -> None:
            async with AIOKafkaProducer(**self.settings(), enable_idempotence=True) as producer:
                sent = []
                for number in itertools.count():
                    if self.stop.is_set():
                        break
                    sent.append(await producer.send(self.name, b"%d" % number))
                    await asyncio.sleep(PAUSE_S)
                async with asyncio.timeout(TIMEOUT_S):
                    await asyncio.gather(*sent)
                self.acknowledged += range(len(sent))

        run_aiokafka(story(), LOAD_S + TIMEOUT_S)

    def read(self) -> None:
        async def story() -> None:
            consumer = AIOKafkaConsumer(self.name, **self.settings(), group_id=self.name, auto_offset_reset="earliest")
            async with consumer:
                while not self.is_done():
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        self.got += [int(record.value) for record in records]

        run_aiokafka(story(), LOAD_S + TIMEOUT_S)


class OverGrpc(Party):
    name = "klamm"

    def settings(self) -> dict[str, str]:
        return {
            "bootstrap.servers": f"{HOST}:{self.cluster.grpc_sasl_ssl}",
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.cluster.server.truststore),
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.name,
            "sasl.password": PASSWORD,
        }

    def write(self) -> None:
        with klamm.Producer({**self.settings(), "delivery.timeout.ms": str(TIMEOUT_S * 1000)}) as producer:
            sent = [(number, producer.send(self.name, b"%d" % number)) for number in self.numbers()]
            self.acknowledged += [number for number, future in sent if future.result(TIMEOUT_S)]

    def read(self) -> None:
        own = {**self.settings(), "group.id": self.name, "auto.offset.reset": "earliest"}
        with klamm.Consumer(own) as consumer:
            consumer.subscribe([self.name])
            while not self.is_done():
                for records in consumer.poll(200).values():
                    self.got += [int(record.value or b"") for record in records]


class Java(Party):
    """Kafka's own tools, a process that writes and one that reads."""

    name = "Java"
    renews = True

    def write(self) -> None:
        # The tool switches them off.
        config = self.config("writes", "retries=2147483647", "enable.idempotence=true")
        options = ["--throughput", "100", "--acks", "-1", "--command-config", config]
        with self.start("VerifiableProducer", *options) as process:
            threading.Thread(target=lambda: (self.stop.wait(), process.terminate()), daemon=True).start()
            assert process.stdout is not None
            for line in process.stdout:
                said = json.loads(line)
                assert said["name"] != "producer_send_error", said
                if said["name"] == "producer_send_success":
                    self.acknowledged.append(int(said["value"]))

    def read(self) -> None:
        options = ["--group-id", self.name, "--reset-policy", "earliest", "--verbose"]
        with self.start("VerifiableConsumer", *options, "--command-config", self.config("reads")) as process:
            threading.Thread(target=self.end_when_done, args=[process], daemon=True).start()
            assert process.stdout is not None
            for line in process.stdout:
                said = json.loads(line)
                if said["name"] == "record_data":
                    self.got.append(int(said["value"]))

    def end_when_done(self, process: subprocess.Popen[str]) -> None:
        """Ends the process after all is written, or when it is too late. The comparison then shows missing numbers."""
        self.written.wait()
        with contextlib.suppress(AssertionError):
            wait_until(self.is_done, timeout_s=TIMEOUT_S)
        process.terminate()

    def config(self, name: str, *own: str) -> str:
        """A file of settings."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        lines = [
            "security.protocol=SASL_SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.cluster.server.truststore}",
            f"sasl.mechanism={self.mechanism}",
            f'sasl.jaas.config={module} required username="{self.name}" password="{PASSWORD}";',
            *own,
        ]
        path = self.directory / f"java-{name}.properties"
        path.write_text("\n".join([*lines, ""]))
        return str(path)

    def start(self, tool: str, *options: str) -> subprocess.Popen[str]:
        at = ["--bootstrap-server", self.cluster.address("SASL_SSL"), "--topic", self.name]
        command = java_programs.command(f"org.apache.kafka.tools.{tool}", *at, *options)
        with (self.directory / f"{tool}.log").open("w") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)


class ReauthenticatingCluster(SaslCluster):
    """A SASL cluster that also has a gRPC listener at which clients log in."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory, connections_max_reauth_ms=str(SESSION_MS), ssl_reload_interval_ms="200", num_partitions="3"
        )
        self.grpc_sasl_ssl = free_port()
        self.settings["listeners"] += f",GRPC_SASL_SSL://{HOST}:{self.grpc_sasl_ssl}"

    def serial(self, port: int) -> int:
        """The serial number of the certificate that is shown there."""
        context = ssl.create_default_context(cafile=str(self.server.truststore))
        if port == self.grpc_sasl_ssl:
            context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((HOST, port), TIMEOUT_S)
        with context.wrap_socket(plain, server_hostname=HOST) as secured:
            shown = secured.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number

    def rotate(self) -> None:
        """Returns when both listeners show a new certificate."""
        renewed = certificates.ca().for_server("server", (HOST, "127.0.0.1", "::1"), now=certificates.NOW)
        certificates.write_stores(self.directory / "server", renewed)
        wanted = renewed.certificate.serial_number
        for port in (self.sasl_ssl, self.grpc_sasl_ssl):
            wait_until(lambda port=port: self.serial(port) == wanted, self.log, timeout_s=TIMEOUT_S)

    def cut_off(self, user: str) -> int:
        """Returns how often a connection of that user was used after the end of its session."""
        return len(re.findall(rf"of user '{user}' came after the end of the session", self.log()))

    def records(self, topic: str) -> list[int]:
        """All numbers in a topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{self.plaintext}",
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found: list[int] = []
        ended: set[int] = set()

        def read() -> bool:
            for record in consumer.consume(1000, 1.0):
                if record.error() is None:
                    found.append(int(record.value() or b""))
                elif record.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(record.partition())
            return len(ended) == PARTITIONS

        wait_until(read, self.log, timeout_s=TIMEOUT_S)
        consumer.close()
        return found


def run_all(parties: Sequence[Party], meanwhile: Callable[[], None]) -> None:
    """Lets all parties write and read while `meanwhile` runs. Raises the exception that any of them raised."""

    def write(party: Party) -> None:
        try:
            party.write()
        finally:
            party.written.set()

    with ThreadPoolExecutor(2 * len(parties)) as pool:
        writing = {party.name: pool.submit(write, party) for party in parties}
        reading = {party.name: pool.submit(party.read) for party in parties}
        try:
            meanwhile()
        finally:
            for party in parties:
                party.stop.set()
            # A consumer stops when its producer stops.
            for party in parties:
                if (error := writing[party.name].exception(2 * TIMEOUT_S)) is not None:
                    party.acknowledged.clear()
                    raise AssertionError(f"{party.name} writes: {error!r}") from error
        for party in parties:
            try:
                reading[party.name].result(TIMEOUT_S)
            except TimeoutError:
                missing = sorted({*party.acknowledged} - {*party.got})
                party.acknowledged.clear()
                raise AssertionError(f"{party.name} did not read {len(missing)} numbers: {missing[:20]}") from None


def told(party: Party, cut_off: int) -> str:
    """Describes how a client continues after its session has ended."""
    if isinstance(party, OverGrpc):
        return "none: it logs in again when a call is refused"
    return f"{cut_off}: it connects again" if cut_off > CUT_OFF_MAX else f"{cut_off}: it renews them"


@pytest.mark.behaviour("Java", GOES_ON)
@pytest.mark.behaviour("confluent-kafka", GOES_ON)
@pytest.mark.behaviour("aiokafka", GOES_ON)
@pytest.mark.behaviour("kafka-python", GOES_ON)
def test_no_record_is_lost_or_doubled_while_sessions_and_certificates_end(tmp_path: Path) -> None:
    cluster = ReauthenticatingCluster(tmp_path / "cluster")
    kinds: list[type[Party]] = [Java, Confluent, Aiokafka, Python, OverGrpc]
    parties = [kind(cluster, tmp_path) for kind in kinds]
    with running_cluster(cluster.directory, cluster.settings, port=cluster.grpc) as cluster.process:
        for party in parties:
            cluster.set_password(party.name, PASSWORD)
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{cluster.plaintext}"})
        for created in admin.create_topics([NewTopic(party.name, PARTITIONS, 1) for party in parties]).values():
            created.result(TIMEOUT_S)

        rotations = 0

        def meanwhile() -> None:
            nonlocal rotations
            until_s = time.monotonic() + LOAD_S
            while (left_s := until_s - time.monotonic()) > 0:
                time.sleep(min(ROTATION_S, left_s))
                cluster.rotate()
                rotations += 1

        run_all(parties, meanwhile)
        print(f"\nsessions of {SESSION_MS} ms, {rotations} new certificates\n")
        print("| client | acknowledged | in the log twice | read twice | connections cut off for an old session |")
        print("|---|---|---|---|---|")
        violations = []
        for party in parties:
            found = Counter(cluster.records(party.name))
            lost = sorted({*party.acknowledged} - found.keys())
            doubled = sorted(number for number, count in found.items() if count > 1)
            unread = sorted({*party.acknowledged} - {*party.got})
            again = len(party.got) - len({*party.got})
            cut_off = cluster.cut_off(party.name)
            print(f"| {party.name} | {len(party.acknowledged)} | {len(doubled)} | {again} | {told(party, cut_off)} |")
            if lost or doubled or unread or not party.acknowledged:
                violations.append((party.name, lost[:20], doubled[:20], unread[:20]))
            if party.renews and cut_off > CUT_OFF_MAX:
                violations.append((party.name, "was cut off", cut_off))
        assert not violations, violations

"""Tests three brokers and a controller that authenticate each other by certificates, while clients produce."""

from __future__ import annotations

import pathlib
import signal
import socket
import ssl
from collections.abc import Iterator

import grpc
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509

from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.broker_pb2 import ReplicaFetchRequest
from tests.support import certificates
from tests.support.ports import free_ports
from tests.support.server_process import ServerProcess
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

HOST = "localhost"
BROKERS = (1, 2, 3)
SESSION = {"broker.heartbeat.interval.ms": "200", "broker.session.timeout.ms": "9000"}


class SecuredCluster:
    """A cluster whose servers use mTLS with each other, and whose Kafka clients use SSL."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        controller, self.stranger_port, *ports = free_ports(range(8))
        self.grpc_ports = dict(zip(BROKERS, ports[:3], strict=True))
        self.kafka_ports = dict(zip(BROKERS, ports[3:], strict=True))
        self.controllers = f"{HOST}:{controller}"
        self.controller = ServerProcess(
            "klamm_controller",
            1,
            directory,
            {
                "listeners": f"GRPC_SSL://{HOST}:{controller}",
                "metadata.log.dir": str(directory / "controller"),
                **self.tls("controller"),
                **SESSION,
            },
        )
        self.brokers = {broker_id: self.broker(broker_id, f"broker-{broker_id}") for broker_id in BROKERS}

    def broker(self, broker_id: int, certificate: str, *, of: str = "Test CA") -> ServerProcess:
        grpc, kafka = self.grpc_ports.get(broker_id, self.stranger_port), self.kafka_ports.get(broker_id, 0)
        return ServerProcess(
            "klamm_broker",
            broker_id,
            self.directory,
            {
                "listeners": f"SSL://{HOST}:{kafka},GRPC_SSL://{HOST}:{grpc}",
                "controller.quorum.bootstrap.servers": self.controllers,
                "log.dirs": str(self.directory / f"log-{broker_id}"),
                "initial.broker.registration.timeout.ms": "4000" if broker_id not in BROKERS else "60000",
                **self.tls(certificate, of=of),
                **SESSION,
            },
        )

    def tls(self, certificate: str, *, of: str = "Test CA") -> dict[str, str]:
        stores = certificates.write_stores(self.directory / certificate, certificates.server(certificate, of=of))
        return {
            **stores.settings(),
            "listener.name.grpc_ssl.ssl.client.auth": "required",
            "ssl.reload.interval.ms": "100",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            "node.principals": "controller:1=User:controller,"
            + ",".join(f"broker:{broker_id}=User:broker-{broker_id}" for broker_id in BROKERS),
        }

    @property
    def client(self) -> dict[str, str]:
        return {
            "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in self.kafka_ports.values()),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.directory / "controller" / "truststore.pem"),
        }

    def serial(self, broker_id: int) -> int:
        """Returns the serial number of the certificate that the broker shows to new clients."""
        context = ssl.create_default_context(cafile=self.client["ssl.ca.location"])
        plain = socket.create_connection((HOST, self.kafka_ports[broker_id]), patience())
        with context.wrap_socket(plain, server_hostname=HOST) as secured:
            shown = secured.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number

    def logs(self) -> str:
        everybody = [self.controller, *self.brokers.values()]
        return "\n".join(f"== {one.log_path.name}\n{one.log_path.read_text()[-3000:]}" for one in everybody)

    def wait_for(self, broker_ids: tuple[int, ...]) -> None:
        admin = AdminClient(self.client)
        wait_until(lambda: sorted(admin.list_topics(timeout=patience()).brokers) == sorted(broker_ids), self.logs)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    made = SecuredCluster(tmp_path_factory.mktemp("mutual"))
    processes = [made.controller, *made.brokers.values()]
    for process in processes:
        process.start()
    try:
        made.wait_for(BROKERS)
        yield made
    finally:
        for process in processes:
            if process.running:
                process.end(signal.SIGKILL)


def test_no_record_is_lost_or_doubled_while_certificates_change_and_a_broker_starts_again(
    cluster: SecuredCluster,
) -> None:
    admin = AdminClient(cluster.client)
    admin.create_topics([NewTopic("t", 3, 3, config={"min.insync.replicas": "2"})])["t"].result(patience())
    failed: list[object] = []
    sent = 0
    producer = Producer({**cluster.client, "enable.idempotence": True, "linger.ms": 1})

    def produce(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            producer.produce(
                "t",
                b"%d" % sent,
                partition=sent % 3,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            sent += 1
            producer.poll(0.001)

    produce(500)
    before = {broker_id: cluster.serial(broker_id) for broker_id in BROKERS}
    for name in ("controller", *(f"broker-{broker_id}" for broker_id in BROKERS)):
        renewed = certificates.ca().for_server(name, (HOST, "127.0.0.1", "::1"), now=certificates.NOW)
        certificates.write_stores(cluster.directory / name, renewed)
        produce(100)
    wait_until(
        lambda: all(cluster.serial(broker_id) != before[broker_id] for broker_id in BROKERS),
        cluster.logs,
        between=lambda: produce(5),
    )
    # A restarted server connects to the others with the new certificates.
    cluster.brokers[2].end(signal.SIGKILL)
    produce(500)
    cluster.brokers[2].start()
    wait_until(
        lambda: all(
            len(partition.isrs) == 3 for partition in admin.list_topics("t", patience()).topics["t"].partitions.values()
        ),
        cluster.logs,
        between=lambda: produce(5),
    )
    assert producer.flush(patience()) == 0
    assert not failed
    consumer = Consumer({**cluster.client, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(3)])
    positions = [0, 0, 0]
    got: list[int] = []

    def read() -> bool:
        for one in consumer.consume(1000, 1):
            got.append(int(one.value() or b"-1"))
            positions[one.partition()] = one.offset() + 1
        return sum(positions) >= sent

    wait_until(read, cluster.logs)
    consumer.close()
    with verdict():
        assert sorted(got) == list(range(sent))
        for partition in range(3):
            own = [number for number in got if number % 3 == partition]
            assert own == sorted(own)


def test_a_server_with_a_foreign_certificate_does_not_join(cluster: SecuredCluster) -> None:
    stranger = cluster.broker(9, "stranger", of="Foreign CA")
    stranger.start()
    assert stranger.wait() == 1
    told = stranger.log_path.read_text()
    assert "no controller of" in told or "refuse its certificate" in told
    cluster.wait_for(BROKERS)


def test_the_certificate_of_one_broker_cannot_act_as_another_broker(cluster: SecuredCluster) -> None:
    """The key of broker 2 does not let a thief fence broker 1 or follow in its name. A client's key does not either."""
    trusted = pathlib.Path(cluster.client["ssl.ca.location"]).read_bytes()
    stolen = certificates.server("broker-2")
    for signed in (stolen, certificates.client("broker-1-friend")):
        shown = grpc.ssl_channel_credentials(trusted, signed.key_pem.encode(), signed.certificate_pem.encode())
        with grpc.secure_channel(cluster.controllers, shown) as channel:
            register = channel.unary_unary(
                "/klamm.v1.Controller/RegisterBroker",
                pb.RegisterBrokerRequest.SerializeToString,
                pb.RegisterResponse.FromString,
            )
            with pytest.raises(grpc.RpcError) as caught:
                register(pb.RegisterBrokerRequest(broker_id=1, incarnation_id=bytes(16)), timeout=patience())
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "is not allowed to act as broker 1" in caught.value.details()
        with grpc.secure_channel(f"{HOST}:{cluster.grpc_ports[3]}", shown) as channel:
            fetch = channel.stream_stream(
                "/klamm.v1.Replication/ReplicaFetch", ReplicaFetchRequest.SerializeToString, lambda answer: answer
            )
            with pytest.raises(grpc.RpcError) as caught:
                list(fetch(iter([ReplicaFetchRequest(replica_id=1)]), timeout=patience()))
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    cluster.wait_for(BROKERS)


def test_a_client_without_tls_or_without_a_certificate_cannot_connect(cluster: SecuredCluster) -> None:
    trusted = pathlib.Path(cluster.client["ssl.ca.location"]).read_bytes()
    shown = certificates.client("auditor")
    signed = grpc.ssl_channel_credentials(trusted, shown.key_pem.encode(), shown.certificate_pem.encode())
    assert _described(grpc.secure_channel(cluster.controllers, signed)) == list(BROKERS)
    for channel in (
        grpc.insecure_channel(cluster.controllers),
        grpc.secure_channel(cluster.controllers, grpc.ssl_channel_credentials(trusted)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            _described(channel)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def _described(channel: grpc.Channel) -> list[int]:
    """Describes the cluster and returns the ids of the brokers."""
    with channel:
        call = channel.unary_unary(
            "/klamm.v1.Admin/DescribeCluster",
            pb.DescribeClusterRequest.SerializeToString,
            pb.DescribeClusterResponse.FromString,
        )
        return sorted(broker.node_id for broker in call(pb.DescribeClusterRequest(), timeout=patience()).brokers)

"""Prints the line by which `klamm up` reports on stdout that the cluster is ready."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from klamm_embedded.secured import SecuredFiles


def print_ready(
    brokers: Sequence[str], kafka: Sequence[str], data_dir: Path, security: SecuredFiles | None = None
) -> None:
    """Prints the addresses of the brokers for gRPC and Kafka clients, as host:port, and the files with which clients
    log in. `kafka` is empty if there is no listener for Kafka clients."""
    kafka_clients = f", Kafka clients at {','.join(kafka)}" if kafka else ""
    line = f"klamm is ready at {','.join(brokers)}{kafka_clients}, data in {data_dir}"
    if security is not None:
        line += f"; log in with {security.client_properties} (kcat: -F {security.librdkafka})"
    print(line, flush=True)  # noqa: T201

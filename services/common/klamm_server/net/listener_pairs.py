"""Pairs of a gRPC listener and a Kafka listener that serve the same clients in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm_server.net.listeners import Listener, ListenerSet, SecurityProtocol


def kafka_beside(listeners: ListenerSet, own_settings: Callable[[str], Mapping[str, str]]) -> dict[str, str]:
    """Returns the name of the Kafka listener beside each gRPC listener that has one.

    A client of both is the same user there and reaches the same host. So the two listeners have the same advertised
    host, the same security, and the same settings of their own, which `own_settings` returns by the listener's name."""
    dialled = {listener.name: listener for listener in listeners.advertised}

    def is_beside(grpc: Listener, kafka: Listener) -> bool:
        return (
            grpc.security == kafka.security
            and dialled[grpc.name].host == dialled[kafka.name].host
            and own_settings(grpc.name) == own_settings(kafka.name)
        )

    kafka_listeners = listeners.of(SecurityProtocol.KAFKA)
    found = {
        grpc.name: next((kafka.name for kafka in kafka_listeners if is_beside(grpc, kafka)), None)
        for grpc in listeners.of(SecurityProtocol.GRPC)
    }
    return {name: kafka for name, kafka in found.items() if kafka is not None}

"""Tests the ports of a cluster on one machine."""

from __future__ import annotations

from klamm_embedded.ports import consecutive, kafka_ports


def test_kafka_ports_are_ten_apart() -> None:
    assert kafka_ports(9092, 3, taken=consecutive(9094, 5)) == [9092, 9102, 9112]
    assert kafka_ports(0, 2, taken=[]) == [0, 0]


def test_kafka_ports_leave_out_the_grpc_ports_of_a_large_cluster() -> None:
    taken = consecutive(9094, 18)
    found = kafka_ports(9092, 16, taken=taken)
    assert found[:3] == [9092, 9112, 9122]
    assert len({*found, *taken}) == 16 + 18

"""Tests how `listeners`, `advertised.listeners` and `listener.security.protocol.map` combine, as in Kafka."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm.wire.v1.common_pb2 import AdvertisedListener, Endpoint
from klamm_server.net.listeners import (
    CAME_BY,
    Listener,
    Security,
    SecurityProtocol,
    between_servers,
    decode,
    encode,
    find,
    listener_set,
    own_listener,
    plain_listeners,
)

GRPC, KAFKA = SecurityProtocol.GRPC, SecurityProtocol.KAFKA


def test_listeners_named_after_a_protocol_need_no_map_and_plaintext_means_kafka() -> None:
    made = listener_set(["GRPC://localhost:1", "KAFKA://[::1]:2", "plaintext://localhost:3"], None, [])
    assert made.of(GRPC) == (Listener("GRPC", GRPC, "localhost", 1),)
    assert made.of(KAFKA) == (Listener("KAFKA", KAFKA, "[::1]", 2), Listener("PLAINTEXT", KAFKA, "localhost", 3))
    assert made.advertised == made.bound


def test_several_listeners_of_one_protocol_are_mapped_by_name() -> None:
    made = listener_set(
        ["INTERNAL://:29092", "EXTERNAL://:9092", "GRPC://b1:9094"],
        ["EXTERNAL://localhost:9092", "INTERNAL://broker-1:29092"],
        ["INTERNAL:PLAINTEXT", "external:kafka"],
    )
    assert [one.name for one in made.of(KAFKA)] == ["INTERNAL", "EXTERNAL"]
    assert made.dialled({"INTERNAL": 29092, "EXTERNAL": 9092}) == (
        Listener("INTERNAL", KAFKA, "broker-1", 29092),
        Listener("EXTERNAL", KAFKA, "localhost", 9092),
    )
    assert made.dialled({"GRPC": 9094}) == (Listener("GRPC", GRPC, "b1", 9094),)


def test_the_bound_port_stands_for_port_0_only() -> None:
    made = listener_set(["GRPC://h:0", "OUT://h:0"], ["OUT://example.com:443"], ["OUT:GRPC"])
    assert [one.address for one in made.dialled({"GRPC": 5, "OUT": 6})] == [("h", 5), ("example.com", 443)]


@pytest.mark.parametrize(
    ("listeners", "advertised", "protocol_map", "message"),
    [
        ([], None, [], "listeners: the list is empty, expected at least one NAME://host:port"),
        (
            ["INTERNAL://h:1"],
            None,
            [],
            "listeners: the listener INTERNAL has no protocol, expected INTERNAL:GRPC or INTERNAL:KAFKA in"
            " listener.security.protocol.map",
        ),
        (
            ["GRPC://h:1"],
            None,
            ["OUT:TLS"],
            "listener.security.protocol.map: 'OUT:TLS' is not valid, expected NAME:PROTOCOL with GRPC, KAFKA,"
            " PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, GRPC_SSL, GRPC_SASL_PLAINTEXT, GRPC_SASL_SSL",
        ),
        (
            ["GRPC://h:1"],
            None,
            ["A:GRPC", "A:KAFKA"],
            "listener.security.protocol.map: A is listed twice, expected each name once",
        ),
        (
            ["GRPC://h:1", "GRPC://h:2"],
            None,
            [],
            "listeners: GRPC is listed twice, expected unique names, with their protocols in"
            " listener.security.protocol.map",
        ),
        (
            ["GRPC://h:1", "KAFKA://h:1"],
            None,
            [],
            "listeners: GRPC and KAFKA have the same port 1, expected different ports",
        ),
        (
            ["GRPC://127.0.0.1:1", "KAFKA://127.0.0.2:1"],
            None,
            [],
            "listeners: GRPC and KAFKA have the same port 1, expected different ports",
        ),
        (["KAFKA://h:1"], None, [], "listeners: no gRPC listener, expected a GRPC://host:port besides 'KAFKA://h:1'"),
        (
            ["GRPC://h:1", "KAFKA://h:2"],
            ["PLAINTEXT://x:1"],
            [],
            "advertised.listeners: PLAINTEXT is not a listener of this server, expected one of GRPC, KAFKA",
        ),
        (
            ["GRPC://h:1"],
            ["GRPC://x:1", "GRPC://y:1"],
            [],
            "advertised.listeners: GRPC is listed twice, expected unique names, with their protocols in"
            " listener.security.protocol.map",
        ),
        (
            ["GRPC://h:1", "KAFKA://:2"],
            ["GRPC://x:1"],
            [],
            "advertised.listeners has no KAFKA: the server listens on every interface, so name the address that other"
            " hosts connect to, e.g. KAFKA://broker1.example.com:2",
        ),
    ],
)
def test_contradictory_or_invalid_listener_settings_are_refused(
    listeners: list[str], advertised: list[str] | None, protocol_map: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        listener_set(listeners, advertised, protocol_map)
    assert str(caught.value) == message


def test_listeners_may_share_a_port_in_different_address_families_and_port_0_always() -> None:
    listener_set(["GRPC://127.0.0.1:1", "KAFKA://[::1]:1"], None, [])
    listener_set(["GRPC://h:0", "KAFKA://h:0"], None, [])


def test_a_caller_gets_the_endpoints_of_the_listener_name_and_protocol_that_it_used() -> None:
    server = (*plain_listeners("b1", 1, Endpoint(host="b1", port=2)), Listener("OUT", GRPC, "example.com", 443))
    assert find(server, "KAFKA", KAFKA) == Listener("KAFKA", KAFKA, "b1", 2)
    assert find(server, "OUT", KAFKA) is None
    assert own_listener(server) == server[0]
    token = CAME_BY.set("OUT")
    assert own_listener(server) == server[2]
    CAME_BY.set("ELSE")
    assert own_listener(server) is None
    CAME_BY.reset(token)


@pytest.mark.parametrize("prefix", ["", "GRPC_"])
def test_listeners_with_sasl_count_as_secured(prefix: str) -> None:
    made = listener_set(["GRPC://h:1", f"{prefix}SASL_PLAINTEXT://h:2", "IN://h:3"], None, [f"IN:{prefix}SASL_SSL"])
    assert [one.name for one in made.secured] == [f"{prefix}SASL_PLAINTEXT", "IN"]
    assert all(one.security.wants_sasl for one in made.secured)
    assert [one.security.is_encrypted for one in made.secured] == [False, True]


def test_listeners_with_tls_are_secured() -> None:
    made = listener_set(["GRPC://h:1", "KAFKA://h:2", "SSL://h:3", "IN://h:4"], None, ["IN:GRPC_SSL"])
    assert [one.name for one in made.secured] == ["SSL", "IN"]
    assert all(one.security.is_encrypted and not one.security.wants_sasl for one in made.secured)


def test_the_listener_between_servers_is_the_first_grpc_one_or_the_one_that_is_named() -> None:
    texts = ["PLAINTEXT://h:1", "OUT://h:2", "GRPC://h:3"]
    assert listener_set(texts, None, ["OUT:GRPC"]).between_servers.name == "OUT"
    made = listener_set(texts, ["OUT://x:4"], ["OUT:GRPC"], "grpc")
    assert made.between_servers.name == "GRPC"
    assert [one.address for one in made.advertised] == [("h", 3), ("h", 1), ("x", 4)]
    for other in ("PLAINTEXT", "ELSE"):
        with pytest.raises(ConfigError) as caught:
            listener_set(texts, None, ["OUT:GRPC"], other)
        assert str(caught.value) == (
            f"inter.broker.listener.name: {other} is not a gRPC listener of this server, expected one of OUT, GRPC"
        )


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True),
        ("127.0.0.2", True),
        ("[::1]", True),
        ("", False),
        ("0.0.0.0", False),
        ("b1", False),
        ("10.0.0.1", False),
    ],
)
def test_only_loopback_is_local(host: str, is_local: bool) -> None:
    assert Listener("A", GRPC, host, 1).is_local is is_local


def test_an_advertised_listener_has_kafkas_protocol_name() -> None:
    told = [
        Listener("A", KAFKA, "a", 1),
        Listener("B", KAFKA, "b", 2, Security(is_encrypted=True)),
        Listener("C", GRPC, "c", 3, Security(is_encrypted=True, wants_sasl=True)),
    ]
    assert [one.protocol for one in encode(told)] == ["KAFKA", "SSL", "GRPC_SASL_SSL"]
    assert list(decode(encode(told))) == told


def test_decoding_advertised_listeners_skips_protocols_of_later_versions() -> None:
    told = (Listener("A", GRPC, "a", 1), Listener("B", KAFKA, "b", 2))
    later = AdvertisedListener(name="C", protocol="QUIC", endpoint=Endpoint(host="c", port=3))
    assert decode([*encode(told), later]) == told


ENCRYPTED = Security(is_encrypted=True)
TOLD = (
    Listener("GRPC", GRPC, "h", 1),
    Listener("SSL", KAFKA, "h", 2, ENCRYPTED),
    Listener("CLIENTS", GRPC, "h", 3, ENCRYPTED),
    Listener("INTERNAL", GRPC, "h", 4, ENCRYPTED),
)


@pytest.mark.parametrize(
    ("own", "port"),
    [
        (Listener("INTERNAL", GRPC, "me", 9, ENCRYPTED), 4),
        (Listener("GRPC", GRPC, "me", 9), 1),
        # Some names differ, and some do not mean the same.
        (Listener("BETWEEN", GRPC, "me", 9, ENCRYPTED), 3),
        (Listener("INTERNAL", GRPC, "me", 9), 1),
    ],
)
def test_a_server_dials_the_listener_with_its_own_name_or_the_first_with_equal_security(
    own: Listener, port: int
) -> None:
    found = between_servers(TOLD, own)
    assert found is not None
    assert found.port == port
    assert between_servers([one for one in TOLD if one.security != own.security], own) is None

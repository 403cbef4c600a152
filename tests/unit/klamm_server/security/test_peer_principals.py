"""Tests the caller's principal, by the certificate of the connection and the rules of the listener."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.rpc.status import CallFailed, Status
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.net.listeners import CAME_BY
from klamm_server.security.listeners_tls import ListenersTls
from klamm_server.security.peer_principals import PeerPrincipals
from tests.support import certificates


class Caller:
    """The caller as gRPC describes it."""

    def __init__(self, certificate: str | None) -> None:
        self._shown = {} if certificate is None else {"x509_pem_cert": [certificate.encode()]}

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._shown


@pytest.fixture
def principals(tmp_path: Path) -> Iterator[PeerPrincipals]:
    stores = certificates.write_stores(tmp_path, certificates.server("one"))
    properties = {
        "node.id": "1",
        "listeners": "GRPC_SSL://localhost:9094,GRPC://localhost:9095",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+).*$/$1/",
        **stores.settings(),
    }
    came_by = CAME_BY.set("GRPC_SSL")
    yield PeerPrincipals(ListenersTls(load(BrokerConfig, properties)))
    CAME_BY.reset(came_by)


def test_a_callers_principal_is_its_certificates_name_by_the_listeners_rules(principals: PeerPrincipals) -> None:
    one, two = (Caller(certificates.server(name).certificate_pem) for name in ("one", "two"))
    assert [principals.of(caller) for caller in (one, two, one)] == ["User:one", "User:two", "User:one"]
    assert principals.of(Caller(None)) == "User:ANONYMOUS"


def test_a_server_knows_its_own_principal(principals: PeerPrincipals) -> None:
    assert principals.own() == "User:one"


def test_a_certificate_name_that_matches_no_rule_is_unauthenticated(principals: PeerPrincipals) -> None:
    with pytest.raises(CallFailed) as caught:
        principals.of(Caller(certificates.client("9").certificate_pem))
    assert caught.value.status is Status.UNAUTHENTICATED


def test_every_caller_at_a_listener_without_tls_is_anonymous(principals: PeerPrincipals) -> None:
    CAME_BY.set("GRPC")
    assert principals.of(Caller(certificates.server("one").certificate_pem)) == "User:ANONYMOUS"

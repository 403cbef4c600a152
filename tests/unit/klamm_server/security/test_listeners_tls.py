"""Tests which listeners have keys and certificates, and which certificate a server shows others."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.errors import ConfigError
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.security.listeners_tls import ListenersTls
from tests.support import certificates

PLAIN = {"node.id": "1", "listeners": "GRPC://localhost:9094,KAFKA://localhost:9092"}


def secured(directory: Path) -> dict[str, str]:
    inside = certificates.write_stores(directory / "inside", certificates.server("inside"))
    outside = certificates.write_stores(directory / "outside", certificates.server("outside"))
    return {
        "node.id": "1",
        "listeners": "SSL://localhost:9092,KAFKA://localhost:9093,GRPC_SSL://localhost:9094",
        "ssl.keystore.location": str(outside.keystore),
        "listener.name.grpc_ssl.ssl.client.auth": "required",
        **{f"listener.name.grpc_ssl.{name}": text for name, text in inside.settings().items()},
    }


def test_each_tls_listener_has_its_own_certificate_and_servers_use_that_of_their_listener(tmp_path: Path) -> None:
    tls = ListenersTls(load(BrokerConfig, secured(tmp_path)))
    inside, outside = tls.of("GRPC_SSL"), tls.of("SSL")
    assert inside is not None
    assert outside is not None
    assert inside.material.chain == certificates.server("inside").certificate_pem
    assert outside.material.chain == certificates.server("outside").certificate_pem
    assert tls.between_servers is inside
    assert tls.of("KAFKA") is None


def test_a_server_without_tls_has_no_certificate() -> None:
    tls = ListenersTls(load(BrokerConfig, PLAIN))
    assert tls.between_servers is None
    assert tls.of("GRPC") is None


def test_a_certificate_that_the_other_servers_would_refuse_is_refused_at_once(tmp_path: Path) -> None:
    properties = secured(tmp_path)
    foreign = certificates.write_stores(tmp_path / "foreign", certificates.server("inside", of="Foreign CA"))
    properties["listener.name.grpc_ssl.ssl.keystore.location"] = str(foreign.keystore)
    with pytest.raises(ConfigError, match=r"servers with this ssl\.truststore\.location refuse its certificate"):
        ListenersTls(load(BrokerConfig, properties))


def test_a_warning_says_that_ssl_client_auth_has_no_effect_at_a_sasl_listener(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {**secured(tmp_path), "listener.security.protocol.map": "SSL:SASL_SSL", "ssl.client.auth": "required"}
    tls = ListenersTls(load(BrokerConfig, properties)).of("SSL")
    assert tls is not None
    assert tls.settings.ssl_client_auth == "none"
    (said,) = caplog.messages
    assert said.startswith("ssl.client.auth has no effect on listener SSL")

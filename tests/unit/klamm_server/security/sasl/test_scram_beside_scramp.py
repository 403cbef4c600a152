"""Tests both sides of SCRAM against another implementation (`scramp`)."""

from __future__ import annotations

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.secret import Secret
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm_server.security.sasl.credential_store import CredentialStore
from klamm_server.security.sasl.scram_server import ScramServer
from klamm_server.security.sasl.server import Authenticated, SaslRefusedError

# scramp prepares names and passwords by SASLprep, which does not change printable ASCII.
TEXTS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)
MECHANISMS = st.sampled_from(ScramMechanism)


@given(MECHANISMS, TEXTS, TEXTS, st.binary(min_size=12, max_size=40), st.integers(4096, 4100))
@settings(max_examples=30)
def test_our_scram_client_logs_in_at_a_scramp_server(
    mechanism: ScramMechanism, name: str, password: str, salt: bytes, iterations: int
) -> None:
    theirs = scramp.ScramMechanism(mechanism.mechanism_name)
    stored = theirs.make_auth_info(password, iteration_count=iterations, salt=salt)
    server = theirs.make_server(lambda asked: stored if asked == name else None)
    client = ScramClient(mechanism, name, Secret(password), nonce="our%nonce")
    server.set_client_first(client.first().decode())
    answer = client.step(server.get_server_first().encode())
    assert answer is not None
    server.set_client_final(answer.decode())
    assert client.step(server.get_server_final().encode()) is None


@given(MECHANISMS, TEXTS, TEXTS, st.binary(min_size=12, max_size=40), st.integers(4096, 4100), st.booleans())
@settings(max_examples=30)
def test_our_scram_server_accepts_a_scramp_client_only_with_the_right_password(
    mechanism: ScramMechanism, name: str, password: str, salt: bytes, iterations: int, right: bool
) -> None:
    salted = salted_password(mechanism, Secret(password), salt, iterations)
    credential = credential_of(mechanism, salted, salt, iterations)
    server = ScramServer(mechanism, CredentialStore({(name, mechanism): credential}, b""), nonce="our%nonce")
    client = scramp.ScramClient([mechanism.mechanism_name], name, password if right else password + "x")
    challenge = server.step(client.get_client_first().encode())
    assert isinstance(challenge, bytes)
    client.set_server_first(challenge.decode())
    final = client.get_client_final().encode()
    if right:
        done = server.step(final)
        assert isinstance(done, Authenticated)
        client.set_server_final(done.answer.decode())
        assert done.name == name
    else:
        with pytest.raises(SaslRefusedError, match="wrong password"):
            server.step(final)

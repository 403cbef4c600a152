from __future__ import annotations

import base64

import pytest

from klamm.secret import Secret
from klamm.security.sasl.scram_keys import (
    ScramCredential,
    ScramMechanism,
    client_proof,
    credential_of,
    matches,
    proves,
    salted_password,
)

# The login of RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
AUTH_MESSAGE = b",".join(
    (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"r=" + NONCE + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=" + NONCE,
    )
)
PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")


def credential(mechanism: ScramMechanism, password: str) -> ScramCredential:
    salted = salted_password(mechanism, Secret(password), SALT, 4096)
    return credential_of(mechanism, salted, SALT, 4096)


def test_the_client_proof_equals_the_rfc_example() -> None:
    salted = salted_password(ScramMechanism.SHA_256, Secret("pencil"), SALT, 4096)
    assert client_proof(ScramMechanism.SHA_256, salted, AUTH_MESSAGE) == PROOF
    assert proves(ScramMechanism.SHA_256, PROOF, credential(ScramMechanism.SHA_256, "pencil"), AUTH_MESSAGE)


@pytest.mark.parametrize("at", range(len(PROOF)))
def test_a_proof_with_a_changed_byte_is_rejected(at: int) -> None:
    changed = PROOF[:at] + bytes([PROOF[at] ^ 1]) + PROOF[at + 1 :]
    assert not proves(ScramMechanism.SHA_256, changed, credential(ScramMechanism.SHA_256, "pencil"), AUTH_MESSAGE)


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_proof_of_another_length_is_rejected(length: int) -> None:
    proof = (PROOF + PROOF)[:length]
    assert not proves(ScramMechanism.SHA_256, proof, credential(ScramMechanism.SHA_256, "pencil"), AUTH_MESSAGE)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("password", ["pencil", "päßword", "a,b=c", "\u00a0 \u2000"])
def test_only_the_right_password_matches_a_credential(mechanism: ScramMechanism, password: str) -> None:
    stored = credential(mechanism, password)
    assert matches(mechanism, Secret(password), stored)
    assert not matches(mechanism, Secret(password + "x"), stored)


def test_passwords_are_not_normalized() -> None:
    # SASLprep would replace the other space by a plain one. Kafka does not.
    assert not matches(ScramMechanism.SHA_256, Secret("a b"), credential(ScramMechanism.SHA_256, "a\u00a0b"))


def test_the_repr_of_a_credential_shows_no_key() -> None:
    shown = repr(ScramCredential(salt=b"salty", iterations=4096, stored_key=b"stored", server_key=b"serving"))
    assert "4096" in shown
    assert not any(secret in shown for secret in ("salty", "stored'", "serving"))


def test_scram_mechanisms_have_kafkas_numbers_and_names() -> None:
    assert ScramMechanism.of_number(1) is ScramMechanism.of_name("SCRAM-SHA-256") is ScramMechanism.SHA_256
    assert ScramMechanism.of_number(2) is ScramMechanism.of_name("SCRAM-SHA-512") is ScramMechanism.SHA_512
    assert ScramMechanism.of_number(0) is ScramMechanism.of_number(3) is ScramMechanism.of_name("SCRAM-SHA-1") is None
    assert [each.key_length for each in ScramMechanism] == [32, 64]

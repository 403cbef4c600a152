from __future__ import annotations

from dataclasses import replace

import pytest

from klamm.secret import Secret
from klamm.security.sasl.scram_keys import ScramCredential, ScramMechanism
from klamm_server.security.sasl.credential_store import Found
from klamm_server.security.sasl.known_passwords import KEPT_MAX, KEPT_MS, KnownPasswords

CREDENTIAL = ScramCredential(salt=b"salt", iterations=4096, stored_key=b"stored" * 5, server_key=b"server")
FOUND = Found(mechanism=ScramMechanism.SHA_256, credential=CREDENTIAL, exists=True)
PASSWORD = Secret("wonderland")


def test_a_password_is_remembered_for_a_limited_time() -> None:
    known = KnownPasswords(b"key")
    assert not known.is_known(FOUND, PASSWORD, 0)
    known.remember(FOUND, PASSWORD, 5)
    assert known.is_known(FOUND, PASSWORD, 5 + KEPT_MS - 1)
    assert not known.is_known(FOUND, PASSWORD, 5 + KEPT_MS)


@pytest.mark.parametrize(
    ("found", "password"),
    [
        (FOUND, Secret("wonderlanD")),
        (FOUND, Secret("")),
        (replace(FOUND, credential=replace(CREDENTIAL, stored_key=b"another" * 5)), PASSWORD),
    ],
)
def test_a_remembered_password_matches_only_the_same_password_and_credential(found: Found, password: Secret) -> None:
    known = KnownPasswords(b"key")
    known.remember(FOUND, PASSWORD, 0)
    assert not known.is_known(found, password, 0)


def test_a_remembered_password_is_not_stored_in_clear() -> None:
    known = KnownPasswords(b"key")
    known.remember(FOUND, PASSWORD, 0)
    assert "wonderland" not in repr(vars(known))


def test_the_oldest_remembered_password_is_evicted() -> None:
    known = KnownPasswords(b"key")
    for number in range(KEPT_MAX):
        known.remember(FOUND, Secret(str(number)), 0)
    known.remember(FOUND, Secret("0"), 1)
    known.remember(FOUND, Secret("one more"), 1)
    assert len(known) == KEPT_MAX
    assert [known.is_known(FOUND, Secret(text), 1) for text in ("0", "1", "one more")] == [True, False, True]

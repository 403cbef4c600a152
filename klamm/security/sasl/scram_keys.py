"""The keys of SCRAM (RFC 5802, section 3; RFC 7677): from a password to what a server stores, and to what both sides
prove.

    SaltedPassword = PBKDF2(password, salt, iterations)     ServerKey = HMAC(SaltedPassword, "Server Key")
    ClientKey = HMAC(SaltedPassword, "Client Key")          StoredKey = H(ClientKey)

Passwords are UTF-8 as they are, without SASLprep, as in Kafka. Secrets are compared by `compare_digest` only.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import Enum

from klamm.secret import Secret

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
"""The maximum number of iterations; with the minimum, Kafka's range for both mechanisms. The maximum also limits the
CPU time that a hostile server can cause."""


class ScramMechanism(Enum):
    """Kafka's two SCRAM mechanisms. `number` is their number in the admin APIs (KIP-554)."""

    SHA_256 = ("SCRAM-SHA-256", 1, "sha256")
    SHA_512 = ("SCRAM-SHA-512", 2, "sha512")

    def __init__(self, mechanism_name: str, number: int, hash_name: str) -> None:
        self.mechanism_name = mechanism_name
        self.number = number
        self.hash_name = hash_name

    @property
    def key_length(self) -> int:
        """The length of each key, in bytes."""
        return hashlib.new(self.hash_name).digest_size

    @classmethod
    def of_number(cls, number: int) -> ScramMechanism | None:
        """Returns the mechanism with Kafka's number, or None if there is none."""
        return _BY_NUMBER.get(number)

    @classmethod
    def of_name(cls, name: str) -> ScramMechanism | None:
        """Returns the mechanism with that name, or None if there is none."""
        return next((cl for cl in cls if cl.mechanism_name == name), None)


_BY_NUMBER = {mechanism.number: mechanism for mechanism in ScramMechanism}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """The credential that a server stores of one user and mechanism. It is never shown, because its keys are enough to
    guess the password offline."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def salted_password(mechanism: ScramMechanism, password: Secret, salt: bytes, iterations: int) -> bytes:
    """Returns the salted password. This is slow: 3.5 ms of CPU (SHA-256, 4,096 iterations) to 20 ms (SHA-512,
    8,192).
    """
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.reveal().encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Returns the credential that servers store for a salted password."""
    return ScramCredential(
        salt=salt,
        iterations=iterations,
        stored_key=stored_key(mechanism, client_key(mechanism, salted)),
        server_key=server_key(mechanism, salted),
    )


def matches(mechanism: ScramMechanism, password: Secret, credential: ScramCredential) -> bool:
    """Returns whether the credential was made from this password. It is as slow as `salted_password`."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(stored_key(mechanism, client_key(mechanism, salted)), credential.stored_key)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return sign(mechanism, salted, b"Client Key")


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return sign(mechanism, salted, b"Server Key")


def stored_key(mechanism: ScramMechanism, key: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, key).digest()


def sign(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """Returns the HMAC of a message."""
    return hmac.digest(key, message, mechanism.hash_name)


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """Returns the ClientKey, masked by a signature. Only a server that has StoredKey can unmask it."""
    key = client_key(mechanism, salted)
    return _xor(key, sign(mechanism, stored_key(mechanism, key), auth_message))


def proves(mechanism: ScramMechanism, proof: bytes, credential: ScramCredential, auth_message: bytes) -> bool:
    """Returns whether the client's proof was made with the credential's password."""
    if len(proof) != mechanism.key_length:
        return False
    key = _xor(proof, sign(mechanism, credential.stored_key, auth_message))
    return hmac.compare_digest(stored_key(mechanism, key), credential.stored_key)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))

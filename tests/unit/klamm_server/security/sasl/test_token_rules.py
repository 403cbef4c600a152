"""Tests tokens of a test issuer: which tokens are accepted, and every known forgery."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import ConfigError
from klamm_server.security.sasl.token_rules import (
    MAX_TOKEN_BYTES,
    KeySet,
    TokenRefusedError,
    TokenRules,
    UnknownKeyError,
    ValidToken,
)

NOW_S = 1_900_000_000
RULES = TokenRules(expected_issuer="https://issuer", expected_audience=frozenset({"klamm", "other"}))


@cache
def private_key(kind: str) -> Any:
    match kind:
        case "EC":
            return ec.generate_private_key(ec.SECP256R1())
        case "P-384":
            return ec.generate_private_key(ec.SECP384R1())
        case "OKP":
            return ed25519.Ed25519PrivateKey.generate()
        case "weak":
            return rsa.generate_private_key(65_537, 1024)
    return rsa.generate_private_key(65_537, 2048)


def jwk(kind: str, key_id: str, **changes: str) -> dict[str, Any]:
    """Returns the public key as its owner publishes it."""
    names = {"EC": "ES256", "P-384": "ES384", "OKP": "EdDSA"}
    algorithm = jwt.get_algorithm_by_name(names.get(kind, "RS256"))
    return {**json.loads(algorithm.to_jwk(private_key(kind).public_key())), "kid": key_id, **changes}


@cache
def keys() -> KeySet:
    known = [jwk("RSA", "rsa"), jwk("EC", "ec"), jwk("P-384", "p384"), jwk("OKP", "okp"), jwk("weak", "weak")]
    hidden = {"kty": "oct", "k": base64.urlsafe_b64encode(b"shared").decode(), "kid": "oct"}
    return KeySet(json.dumps({"keys": [*known, hidden, jwk("other", "enc", use="enc")]}).encode())


def claims(**changes: Any) -> dict[str, Any]:
    """Returns the claims of a good token with the changes. A change to None removes the claim."""
    good = {"iss": "https://issuer", "aud": "klamm", "sub": "alice", "iat": NOW_S - 60, "exp": NOW_S + 60}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def token(
    algorithm: str = "RS256", kind: str = "RSA", key_id: str | None = "rsa", headers: Any = None, **changes: Any
) -> str:
    header = {**({} if key_id is None else {"kid": key_id}), **(headers or {})}
    return jwt.encode(claims(**changes), private_key(kind), algorithm=algorithm, headers=header)


def by_hand(header: Any, payload: Any, signature: bytes = b"") -> str:
    """Returns a token without checks, because a library would refuse to make it."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, signature))


@pytest.mark.parametrize(
    ("algorithm", "kind", "key_id"),
    [
        ("RS256", "RSA", "rsa"),
        ("RS512", "RSA", "rsa"),
        ("PS384", "RSA", "rsa"),
        ("ES256", "EC", "ec"),
        ("ES384", "P-384", "p384"),
        ("EdDSA", "OKP", "okp"),
        ("ES256", "EC", None),
    ],
)
def test_a_valid_token_of_any_supported_algorithm_is_accepted(algorithm: str, kind: str, key_id: str | None) -> None:
    found = RULES.validate(token(algorithm, kind, key_id, scope="read write"), keys(), NOW_S)
    assert found == ValidToken(subject="alice", expires_at_s=NOW_S + 60, scopes=frozenset({"read", "write"}))


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["x", "klamm"]},
        {"aud": "other"},
        {"exp": NOW_S - 29},
        {"iat": NOW_S + 30},
        {"nbf": NOW_S + 30},
        {"exp": NOW_S + 0.5},
        {"scope": ["read"]},
    ],
)
def test_a_token_with_acceptable_claims_is_accepted(changes: dict[str, Any]) -> None:
    assert RULES.validate(token(**changes), keys(), NOW_S).subject == "alice"


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"iss": "https://issuer/"}, "iss"),
        ({"iss": None}, "iss"),
        ({"iss": 7}, "iss"),
        ({"aud": "klam"}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": {"klamm": 1}}, "aud"),
        ({"aud": ["klamm", 7]}, "aud"),
        ({"exp": NOW_S - 30}, "exp"),
        ({"exp": None}, "exp"),
        ({"exp": str(NOW_S + 60)}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": float("inf")}, "exp"),
        ({"exp": float("nan")}, "exp"),
        ({"iat": NOW_S + 31}, "iat"),
        ({"iat": None}, "iat"),
        ({"nbf": NOW_S + 31}, "nbf"),
        ({"nbf": "soon"}, "nbf"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": ["alice"]}, "sub"),
        ({"scope": 7}, "scope"),
    ],
)
def test_a_token_with_a_wrong_or_missing_claim_is_refused(changes: dict[str, Any], claim: str) -> None:
    bad = by_hand_signed(claims(**changes))
    with pytest.raises(TokenRefusedError, match=f"claim {claim}: "):
        RULES.validate(bad, keys(), NOW_S)


def by_hand_signed(payload: Any) -> str:
    """Returns a signed token whose claims may have types that PyJWT would refuse."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return jwt.PyJWS().encode(data, private_key("RSA"), algorithm="RS256", headers={"kid": "rsa"})


def test_the_names_of_the_subject_and_scope_claims_can_be_configured() -> None:
    rules = TokenRules(
        expected_issuer="https://issuer",
        expected_audience=frozenset({"klamm"}),
        sub_claim_name="upn",
        scope_claim_name="scp",
    )
    found = rules.validate(token(upn="bob", scp=["a"]), keys(), NOW_S)
    assert (found.subject, found.scopes) == ("bob", {"a"})


def public_pem() -> bytes:
    return (
        private_key("RSA")
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def shared_secret(secret: bytes, header: dict[str, Any]) -> str:
    signed = by_hand(header, claims()).rpartition(".")[0]
    return (
        signed
        + "."
        + base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), hashlib.sha256)).decode().rstrip("=")
    )


def signed_by_a_short_key() -> str:
    """Returns a token signed by a key so short that PyJWT would warn."""
    signed = by_hand({"alg": "RS256", "kid": "weak"}, claims()).rpartition(".")[0]
    signature = private_key("weak").sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return signed + "." + base64.urlsafe_b64encode(signature).decode().rstrip("=")


FORGED = {
    "none": lambda: by_hand({"alg": "none", "kid": "rsa"}, claims()),
    "None": lambda: by_hand({"alg": "None", "kid": "rsa"}, claims()),
    "no algorithm": lambda: by_hand({"kid": "rsa"}, claims()),
    "algorithms": lambda: by_hand({"alg": ["RS256"], "kid": "rsa"}, claims()),
    "the public key as a shared secret": lambda: shared_secret(public_pem(), {"alg": "HS256", "kid": "rsa"}),
    "the shared key of the key set": lambda: shared_secret(b"shared", {"alg": "HS256", "kid": "oct"}),
    "an empty shared secret": lambda: shared_secret(b"", {"alg": "HS256"}),
    "no signature": lambda: token().rpartition(".")[0] + ".",
    "another signature": lambda: token().rpartition(".")[0] + "." + token(sub="eve").rpartition(".")[2],
    "another key": lambda: token(kind="other"),
    "a key of another type": lambda: token("ES256", "EC", "rsa"),
    "a key of another curve": lambda: token("ES256", "EC", "p384"),
    "a key that is too short": lambda: signed_by_a_short_key(),
    "a key for encryption": lambda: token("RS256", "other", "enc"),
    "an unknown key": lambda: token(key_id="unknown"),
    "a key id that is no text": lambda: by_hand({"alg": "RS256", "kid": 7}, claims()),
    "a key of its own": lambda: token(kind="other", headers={"jwk": jwk("other", "rsa")}),
    "a key set of its own": lambda: token(headers={"jku": "https://evil/keys"}),
    "a certificate of its own": lambda: token(headers={"x5c": ["MII"]}),
    "an address of a certificate": lambda: token(headers={"x5u": "https://evil"}),
    "an extension that must be known": lambda: token(headers={"crit": ["exp"]}),
    "claims that are no object": lambda: by_hand_signed([1]),
    "claims that are no JSON": lambda: by_hand_signed(b"{"),
    "a claim twice": lambda: by_hand_signed(b'{"sub":"alice","sub":"eve"}'),
    "deep claims": lambda: by_hand_signed(b"[" * 10_000),
    "a deep header": lambda: by_hand(b"[" * 10_000, claims()),
    "a header that is no object": lambda: by_hand([1], claims()),
    "too long": lambda: token(sub="a" * MAX_TOKEN_BYTES),
    "nothing": lambda: "",
    "dots": lambda: "..",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_token_is_refused(name: str) -> None:
    forged = FORGED[name]()
    with pytest.raises(TokenRefusedError) as refused:
        RULES.validate(forged, keys(), NOW_S)
    assert not forged.strip(".") or forged not in f"{refused.value} {refused.value.__cause__!r}"


def test_a_token_without_a_key_id_needs_a_single_key() -> None:
    two = KeySet(json.dumps({"keys": [jwk("RSA", "one"), jwk("other", "two")]}).encode())
    assert RULES.validate(token(key_id="one"), two, NOW_S).subject == "alice"
    with pytest.raises(UnknownKeyError, match="2 keys"):
        RULES.validate(token(key_id=None), two, NOW_S)


def test_a_token_with_an_unknown_key_raises_its_own_error() -> None:
    """The separate error lets the caller fetch newer keys."""
    with pytest.raises(UnknownKeyError):
        RULES.validate(token(key_id="unknown"), keys(), NOW_S)


@given(st.text() | st.text("eyJhbGciOiJSUzI1NiJ9._-", max_size=60) | st.binary().map(lambda data: by_hand(data, data)))
def test_any_text_is_refused_as_a_token(text: str) -> None:
    with pytest.raises(TokenRefusedError):
        RULES.validate(text, keys(), NOW_S)


@given(
    st.dictionaries(
        st.sampled_from(["iss", "aud", "exp", "iat", "nbf", "sub", "scope"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers() | st.text()),
    )
)
def test_any_signed_claims_are_accepted_or_refused(changes: dict[str, Any]) -> None:
    with contextlib.suppress(TokenRefusedError):
        RULES.validate(by_hand_signed({**claims(), **changes}), keys(), NOW_S)


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{}", b'{"keys":7}', b'{"keys":[7]}', b'{"keys":[{}]}', b"[" * 100_000]
)
def test_an_invalid_jwks_is_refused(document: bytes) -> None:
    with pytest.raises(ConfigError, match="JWKS"):
        KeySet(document)


def test_an_unusable_key_in_a_jwks_is_ignored() -> None:
    broken = KeySet(json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "x": "?", "y": "?", "kid": "ec"}]}).encode())
    with pytest.raises(UnknownKeyError):
        RULES.validate(token("ES256", "EC", "ec"), broken, NOW_S)

"""Validates the JSON web tokens with which clients log in (RFC 7519, 8725; KIP-255, 768).

The algorithm is of a closed list and fits the key: a token cannot choose a weaker one, none, or have a public key taken
for a shared secret. Keys come from the key set that was configured, never from the token: one whose header brings or
names other keys is refused. Time is an argument. Loaded only where OAUTHBEARER is enabled: it needs the extra
`security`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from klamm.errors import ConfigError, KlammError

MAX_TOKEN_BYTES: Final = 16_384
_MIN_RSA_BITS: Final = 2048
_KEY_TYPES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", ())),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
"""The type and the curves of the keys that each algorithm takes; no other algorithm is known."""
_REFUSED_HEADERS: Final = ("crit", "jku", "jwk", "x5u", "x5c")


class TokenRefusedError(KlammError):
    """The token is refused. The text says why, and shows nothing of the token but names of claims."""


class UnknownKeyError(TokenRefusedError):
    """The token is signed by a key that the key set lacks: another one may have it by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidToken:
    """The claims of a valid token about its client."""

    subject: str
    expires_at_s: float
    """The token's end in seconds since 1970."""
    scopes: frozenset[str]


class KeySet:
    """The public keys of the server that gives out tokens (RFC 7517). Raises ConfigError where the document is none."""

    def __init__(self, document: bytes) -> None:
        try:
            keys = json.loads(document)["keys"]
            self._keys = [key for key in keys if _is_public_signing_key(key)]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ConfigError('the JWKS is not JSON of the form {"keys": [...]}') from error
        self._prepared: dict[tuple[int, str], Any] = {}

    def find(self, key_id: str | None, algorithm: str) -> Any:
        """Returns the key with that id, or without an id the only key that fits. Raises UnknownKeyError."""
        fitting = [
            at
            for at, key in enumerate(self._keys)
            if _fits(key, algorithm) and (key_id is None or key.get("kid") == key_id)
        ]
        if len(fitting) != 1:
            raise UnknownKeyError(f"{len(fitting)} keys of the key set match the token's header; expected one")
        return self._prepare(fitting[0], algorithm)

    def _prepare(self, at: int, algorithm: str) -> Any:
        if (at, algorithm) not in self._prepared:
            try:
                self._prepared[at, algorithm] = jwt.PyJWK(self._keys[at], algorithm=algorithm)
            except (jwt.PyJWTError, ValueError, TypeError) as error:
                raise UnknownKeyError("the key that matches the token's header cannot be used") from error
        return self._prepared[at, algorithm]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The rules that a token must meet. Their names are those of Kafka's settings `sasl.oauthbearer.*`."""

    expected_issuer: str | None
    """The issuer that tokens must have. With None, any issuer is accepted."""
    expected_audience: frozenset[str] | None
    """The audiences of which tokens must have one. With None, any audience is accepted."""
    clock_skew_s: int = 30
    sub_claim_name: str = "sub"
    scope_claim_name: str = "scope"

    def validate(self, token: str, keys: KeySet, now_s: float) -> ValidToken:
        """Returns the claims of a token. For any other token, raises only TokenRefusedError. Takes a third to half a
        millisecond of CPU."""
        claims = _verified_claims(token, keys)
        self._check_who(claims)
        expires_at_s = _time(claims, "exp")
        if expires_at_s <= now_s - self.clock_skew_s:
            raise TokenRefusedError("claim exp: the token has expired")
        for name in ("iat", "nbf") if "nbf" in claims else ("iat",):
            if _time(claims, name) > now_s + self.clock_skew_s:
                raise TokenRefusedError(f"claim {name}: the token is not valid yet")
        subject = claims.get(self.sub_claim_name)
        if not isinstance(subject, str) or not subject:
            raise TokenRefusedError(f"claim {self.sub_claim_name}: expected a name")
        return ValidToken(subject=subject, expires_at_s=expires_at_s, scopes=self._scopes(claims))

    def _check_who(self, claims: Mapping[str, Any]) -> None:
        if self.expected_issuer is not None and claims.get("iss") != self.expected_issuer:
            raise TokenRefusedError("claim iss: not the expected issuer")
        if self.expected_audience is not None and not self.expected_audience & set(_texts(claims.get("aud"), "aud")):
            raise TokenRefusedError("claim aud: not for the expected audience")

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        value = claims.get(self.scope_claim_name, "")
        return frozenset(value.split() if isinstance(value, str) else _texts(value, self.scope_claim_name))


def _verified_claims(token: str, keys: KeySet) -> dict[str, Any]:
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenRefusedError(f"the token has {len(token)} characters; expected at most {MAX_TOKEN_BYTES}")
    try:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in _KEY_TYPES:
            raise TokenRefusedError("the token's algorithm is not accepted")
        if brought := [name for name in _REFUSED_HEADERS if name in header]:
            raise TokenRefusedError(f"the token's header has {', '.join(brought)}, which is not accepted")
        key = keys.find(header.get("kid"), algorithm)
        payload = jwt.PyJWS().decode_complete(token, key=key, algorithms=[algorithm])["payload"]
        claims = json.loads(payload, object_pairs_hook=_unique)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        # Not as the cause: such an error may hold the token.
        raise TokenRefusedError("the token is malformed, or its signature is wrong") from None
    if not isinstance(claims, dict):
        raise TokenRefusedError("the token holds no claims")
    return claims


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    claims = dict(pairs)
    if len(claims) < len(pairs):
        raise ValueError("a claim is listed twice")
    return claims


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise TokenRefusedError(f"claim {name}: expected a time")
    return value


def _texts(value: Any, name: str) -> Iterable[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise TokenRefusedError(f"claim {name}: expected a text or a list of texts")
    return values


def _is_public_signing_key(key: Mapping[str, Any]) -> bool:
    return key["kty"] in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig" and "d" not in key


def _fits(key: Mapping[str, Any], algorithm: str) -> bool:
    kind, curves = _KEY_TYPES[algorithm]
    if key["kty"] != kind or key.get("alg", algorithm) != algorithm:
        return False
    # Six bits a character.
    return key.get("crv") in curves if curves else len(str(key.get("n", ""))) * 6 >= _MIN_RSA_BITS

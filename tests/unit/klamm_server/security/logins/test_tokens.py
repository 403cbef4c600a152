"""Tests tokens against keys that change, disappear and cannot be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm.security.sasl.oauthbearer_client import OAuthBearerClient
from klamm_server.config.sasl_settings import ListenerSaslSettings
from klamm_server.security.logins.jwks import JwksError
from klamm_server.security.logins.tokens import Tokens
from klamm_server.security.sasl.key_refresh import UNKNOWN_KEY_MS
from klamm_server.security.sasl.server import Verification
from klamm_server.security.sasl.token_rules import TokenRefusedError, UnknownKeyError, ValidToken
from tests.support.waiting import until

NOW_S = 1_900_000_000


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return 1000 * NOW_S

    def monotonic_ms(self) -> int:
        return self.now_ms


@cache
def private_key(key_id: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_set(*key_ids: str) -> bytes:
    algorithm = jwt.get_algorithm_by_name("ES256")
    keys = [{**json.loads(algorithm.to_jwk(private_key(key_id).public_key())), "kid": key_id} for key_id in key_ids]
    return json.dumps({"keys": keys}).encode()


def token(key_id: str = "old", **changes: Any) -> Secret:
    claims = {"iss": "https://issuer", "aud": "klamm", "sub": "alice", "iat": NOW_S, "exp": NOW_S + 60, **changes}
    return Secret(jwt.encode(claims, private_key(key_id), algorithm="ES256", headers={"kid": key_id}))


class World:
    """Keys that a test changes. `readings` counts how often they were read."""

    def __init__(self, *key_ids: str, **settings: str) -> None:
        self.clock = ManualClock()
        self.document: bytes | None = key_set(*key_ids)
        self.readings = 0
        given = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
            "sasl.oauthbearer.expected.audience": "klamm",
            "sasl.oauthbearer.expected.issuer": "https://issuer",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "1",
        }
        dotted = {f"sasl.oauthbearer.{name.replace('_', '.')}": text for name, text in settings.items()}
        self.tokens = Tokens(ListenerSaslSettings.parse({**given, **dotted}), self.clock, read=self.read)

    def read(self, _: str) -> bytes:
        self.readings += 1
        if self.document is None:
            raise JwksError("cannot read the keys")
        return self.document

    async def found(self, brought: Secret) -> ValidToken | TokenRefusedError:
        step = self.tokens.server().step(OAuthBearerClient(brought).first())
        assert isinstance(step, Verification)
        found: ValidToken | TokenRefusedError = await self.tokens.check(step)
        return found


def run(world: World, scenario: Callable[[], Any]) -> None:
    async def whole() -> None:
        reading = asyncio.create_task(world.tokens.run())
        try:
            await scenario()
        finally:
            reading.cancel()
            world.tokens.close()

    asyncio.run(whole())


def test_tokens_are_checked_with_the_keys_that_were_read_at_the_start() -> None:
    world = World("old")

    async def scenario() -> None:
        await until(lambda: world.readings == 1)
        found = await world.found(token())
        assert isinstance(found, ValidToken)
        assert (found.subject, found.expires_at_s) == ("alice", NOW_S + 60)
        assert isinstance(await world.found(token(aud="other")), TokenRefusedError)
        assert world.readings == 1

    run(world, scenario)


def test_a_token_with_a_new_key_id_makes_the_keys_be_read_again() -> None:
    world = World("old")

    async def scenario() -> None:
        await until(lambda: world.readings == 1)
        assert isinstance(await world.found(token()), ValidToken)
        world.document = key_set("old", "new")
        several = await asyncio.gather(*(world.found(token("new")) for _ in range(5)))
        assert all(isinstance(found, ValidToken) for found in several)
        assert world.readings == 2

    run(world, scenario)


def test_tokens_with_unknown_keys_make_the_keys_be_read_once_per_interval() -> None:
    world = World("old")

    async def scenario() -> None:
        await until(lambda: world.readings == 1)
        for _ in range(3):
            assert isinstance(await world.found(token("foreign")), UnknownKeyError)
        assert world.readings == 2
        world.clock.now_ms += UNKNOWN_KEY_MS
        assert isinstance(await world.found(token("foreign")), UnknownKeyError)
        assert world.readings == 3

    run(world, scenario)


def test_old_keys_stay_valid_while_the_keys_cannot_be_read() -> None:
    world = World("old")

    async def scenario() -> None:
        await until(lambda: world.readings == 1)
        assert isinstance(await world.found(token()), ValidToken)
        world.document = None
        assert isinstance(await world.found(token("new")), UnknownKeyError)
        assert isinstance(await world.found(token()), ValidToken)

    run(world, scenario)


def test_no_token_is_accepted_until_the_keys_have_been_read() -> None:
    world = World("old")
    world.document = None

    async def scenario() -> None:
        await until(lambda: world.readings >= 1)
        assert isinstance(await world.found(token()), UnknownKeyError)
        world.document = key_set("old")
        world.clock.now_ms += UNKNOWN_KEY_MS
        assert isinstance(await world.found(token()), ValidToken)

    run(world, scenario)


def test_a_missing_or_invalid_key_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
        "sasl.oauthbearer.allow.unverified.audience": "true",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    given = ListenerSaslSettings.parse(settings)
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url: .* No such file"):
        Tokens(given, ManualClock())
    path.write_text("[]")
    with pytest.raises(ConfigError, match="the JWKS is not JSON of the form"):
        Tokens(given, ManualClock())
    path.write_bytes(key_set("old"))
    Tokens(given, ManualClock()).close()

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.secret import Secret
from klamm.security.sasl.plain_client import PlainClient
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm_server.config.sasl_settings import ListenerSaslSettings
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.auditor import Auditor
from klamm_server.security.logins.checks import WAITING_MAX as CHECKS_WAITING_MAX
from klamm_server.security.logins.checks import ChecksBusyError
from klamm_server.security.logins.login import CredentialChangedError, Login, TooManyFailuresError
from klamm_server.security.logins.logins import Logins
from klamm_server.security.sasl.failed_logins import WAITING_MAX
from klamm_server.security.sasl.proven_sessions import REASON
from klamm_server.security.sasl.sasl_authenticator import AuthenticateReply, SaslStateError
from tests.support.audit_events import AuditedServer
from tests.support.waiting import until

SHA_256 = ScramMechanism.SHA_256


def image(**passwords: str) -> MetadataImage:
    """Returns the metadata of a cluster with these users and passwords."""
    credentials = {
        (name, SHA_256): credential_of(SHA_256, salted_password(SHA_256, Secret(text), b"salt", 4096), b"salt", 4096)
        for name, text in passwords.items()
    }
    return replace(MetadataImage.empty(), scram_credentials=credentials, cluster_secret=b"secret")


class World:
    """A server with a listener OUTSIDE, and alice among its users. `ended` has the reasons why sessions ended."""

    def __init__(
        self, mechanisms: str = "SCRAM-SHA-256,PLAIN", delay_ms: int = 0, auditor: Auditor | None = None
    ) -> None:
        settings = {
            "sasl.enabled.mechanisms": mechanisms,
            "connection.failed.authentication.delay.ms": str(delay_ms),
        }
        self.logins = Logins(
            {"OUTSIDE": ListenerSaslSettings.parse(settings)}, SystemClock(), random.SystemRandom(), auditor
        )
        self.logins.on_image(image(alice="wonderland"))
        self.ended: list[str] = []

    def login(self, address: str = "10.0.0.1") -> Login:
        at = self.logins.at("OUTSIDE")
        assert at is not None
        return Login(at, address, self.ended.append)

    async def by_plain(self, password: str, name: str = "alice", *, login: Login | None = None) -> AuthenticateReply:
        one = login or self.login()
        assert one.authenticator.handshake("PLAIN", 0).code is ErrorCode.NONE
        return await one.authenticate(PlainClient(name, Secret(password)).first())

    async def by_scram(self, password: str, *, login: Login | None = None) -> Sequence[AuthenticateReply]:
        one, client = login or self.login(), ScramClient(SHA_256, "alice", Secret(password), nonce="client")
        assert one.authenticator.handshake("SCRAM-SHA-256", 0).code is ErrorCode.NONE
        first = await one.authenticate(client.first())
        proof = client.step(first.auth_bytes)
        assert proof is not None
        return first, await one.authenticate(proof)


def test_only_listeners_where_clients_log_in_have_logins() -> None:
    world = World()
    assert world.logins.at("INSIDE") is None
    assert world.logins.at("OUTSIDE") is not None
    world.logins.close()


@pytest.mark.parametrize(("password", "code"), [("wonderland", 0), ("Wonderland", 58), ("", 58)])
def test_a_login_succeeds_only_with_the_right_password(password: str, code: int) -> None:
    async def scenario() -> None:
        world = World()
        assert (await world.by_plain(password or "x")).code == code
        assert (await world.by_scram(password or "x"))[-1].code == code
        world.logins.close()

    asyncio.run(scenario())


def test_no_login_succeeds_before_the_metadata_have_arrived() -> None:
    async def scenario() -> None:
        world = World()
        world.logins.on_image(MetadataImage.empty())
        assert (await world.by_plain("wonderland")).code is ErrorCode.SASL_AUTHENTICATION_FAILED
        world.logins.close()

    asyncio.run(scenario())


def test_a_changed_password_ends_sessions_and_is_required_at_the_next_login() -> None:
    async def scenario() -> None:
        world = World()
        scram, plain, gone = world.login(), world.login(), world.login()
        await world.by_scram("wonderland", login=scram)
        for one in (plain, gone):
            await world.by_plain("wonderland", login=one)
        gone.close()
        world.logins.on_image(image(alice="wonderland", bob="b"))
        assert not world.ended
        world.logins.on_image(image(alice="looking glass"))
        assert world.ended == [REASON] * 2
        assert (await world.by_plain("wonderland")).code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (await world.by_plain("looking glass")).code is ErrorCode.NONE
        world.logins.close()

    asyncio.run(scenario())


def test_a_login_whose_credential_changes_gets_no_session() -> None:
    async def scenario() -> None:
        world = World()
        one, client = world.login(), ScramClient(SHA_256, "alice", Secret("wonderland"), nonce="client")
        one.authenticator.handshake("SCRAM-SHA-256", 0)
        proof = client.step((await one.authenticate(client.first())).auth_bytes)
        assert proof is not None
        world.logins.on_image(image(alice="looking glass"))
        with pytest.raises(CredentialChangedError, match="was changed or deleted"):
            await one.authenticate(proof)
        world.logins.close()

    asyncio.run(scenario())


def test_a_client_that_logs_in_again_has_only_one_session() -> None:
    async def scenario() -> None:
        world = World()
        one = world.login()
        for _ in range(3):
            await world.by_plain("wonderland", login=one)
        world.logins.on_image(image())
        assert world.ended == [REASON]
        world.logins.close()

    asyncio.run(scenario())


def test_the_number_of_delayed_failed_logins_of_one_address_is_bounded() -> None:
    async def scenario() -> None:
        world = World(delay_ms=10_000)
        failing = [asyncio.create_task(world.by_scram("wrong")) for _ in range(WAITING_MAX)]
        users = world.logins.at("OUTSIDE")
        assert users is not None
        failures = users.users.failures

        def is_full() -> bool:
            if failures.begin_wait("10.0.0.1"):
                failures.end_wait("10.0.0.1")
                return False
            return True

        await until(is_full)
        with pytest.raises(TooManyFailuresError):
            await world.by_scram("wrong")
        assert (await world.by_scram("wonderland"))[-1].code is ErrorCode.NONE
        assert not any(task.done() for task in failing)
        for task in failing:
            task.cancel()
        await asyncio.gather(*failing, return_exceptions=True)
        assert not is_full()
        world.logins.close()

    asyncio.run(scenario())


def test_the_log_has_the_cause_of_a_failed_login_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world = World()
        with caplog.at_level("INFO"):
            reply = await world.by_plain("canary-4711", "n" * 1000)
        assert "has no credential" in reply.cause
        world.logins.close()

    asyncio.run(scenario())
    assert "client=10.0.0.1 login failed: user 'nnn" in caplog.text
    assert "canary" not in caplog.text
    assert len(caplog.messages[0]) < 300


def test_the_audit_has_the_result_of_each_login_and_no_password() -> None:
    async def run() -> list[dict[str, Any]]:
        told = AuditedServer()
        world = World(auditor=told.auditor)
        await world.by_plain("wonderland")
        await world.by_plain("canary-password")
        await world.by_plain("canary-password", name="nobody")
        assert world.login().handshake("GSSAPI").code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        await told.auditor.close()
        world.logins.close()
        return told.events

    events = asyncio.run(run())
    found = [(event["user"]["name"], event["auth_protocol"], event["status_id"]) for event in events]
    assert found == [("alice", "PLAIN", 1), ("alice", "PLAIN", 2), ("nobody", "PLAIN", 2), ("", "GSSAPI", 2)]
    assert {event["dst_endpoint"]["svc_name"] for event in events} == {"OUTSIDE"}
    assert {event["src_endpoint"]["ip"] for event in events} == {"10.0.0.1"}
    assert len({event.get("status_detail") for event in events}) == 4, "each failure has its own cause"
    assert not any(secret in json.dumps(events) for secret in ("canary-password", "wonderland"))


def test_the_audit_has_logins_that_end_without_an_answer() -> None:
    async def run() -> list[dict[str, Any]]:
        told = AuditedServer()
        world = World(auditor=told.auditor)
        early, twice, late = world.login(), world.login(), world.login()
        with pytest.raises(SaslStateError):
            await early.authenticate(b"")
        assert twice.handshake("PLAIN").code is ErrorCode.NONE
        with pytest.raises(SaslStateError):
            twice.handshake("PLAIN")
        late.break_off("too late")
        results = await asyncio.gather(
            *(world.by_plain("wrong") for _ in range(CHECKS_WAITING_MAX + 10)), return_exceptions=True
        )
        assert any(isinstance(result, ChecksBusyError) for result in results)
        await told.auditor.close()
        world.logins.close()
        return told.events

    events = asyncio.run(run())
    causes = [event["status_detail"] for event in events if not event["user"]["name"]]
    assert causes[:3] == ["SaslAuthenticate before SaslHandshake", "SaslHandshake during the login", "too late"]
    assert any("password checks are pending" in cause for cause in causes[3:])
    assert {event["status_id"] for event in events} == {2}


def test_logins_of_excluded_principals_are_audited_only_if_they_fail() -> None:
    """A stranger must not be able to hide guesses behind the name."""

    async def run() -> list[dict[str, Any]]:
        told = AuditedServer(**{"audit.excluded.principals": "User:alice"})
        world = World(auditor=told.auditor)
        assert (await world.by_plain("wonderland")).code == 0
        assert (await world.by_plain("wrong")).code != 0
        await told.auditor.close()
        world.logins.close()
        return told.events

    (event,) = asyncio.run(run())
    assert (event["user"]["name"], event["status_id"]) == ("alice", 2)

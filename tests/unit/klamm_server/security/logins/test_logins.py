from __future__ import annotations

import asyncio
import random

import pytest

from klamm_server.config.sasl_settings import ListenerSaslSettings
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.logins.logins import ListenerLogins, Logins

PLAIN = ListenerSaslSettings.parse({"sasl.enabled.mechanisms": "PLAIN", "connections.max.reauth.ms": "5000"})
SCRAM = ListenerSaslSettings.parse({})


def at(logins: Logins, name: str) -> ListenerLogins:
    found = logins.at(name)
    assert found is not None
    return found


def test_listeners_have_their_own_mechanisms_and_share_the_users() -> None:
    logins = Logins({"INSIDE": PLAIN, "OUTSIDE": SCRAM}, SystemClock(), random.SystemRandom())
    inside, outside = at(logins, "INSIDE"), at(logins, "OUTSIDE")
    assert logins.at("OTHER") is None
    assert inside.users is outside.users
    assert inside.new_authenticator().handshake("?", 0).mechanisms == ("PLAIN",)
    assert outside.new_authenticator().handshake("?", 0).mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    logins.close()


def test_the_store_of_users_is_rebuilt_only_if_users_change() -> None:
    logins = Logins({"INSIDE": PLAIN}, SystemClock(), random.SystemRandom())
    users, image = at(logins, "INSIDE").users, MetadataImage.empty()
    logins.on_image(image)
    before = users.store
    logins.on_image(image)
    assert users.store is before
    logins.close()


def test_without_oauthbearer_there_are_no_keys_to_refresh() -> None:
    async def scenario() -> None:
        logins = Logins({"INSIDE": PLAIN}, SystemClock(), random.SystemRandom())
        await logins.run()
        logins.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_scram_login_has_its_own_nonce(name: str) -> None:
    logins = Logins({"OUTSIDE": SCRAM}, SystemClock(), random.SystemRandom())
    answers = set()
    for _ in range(5):
        authenticator = at(logins, "OUTSIDE").new_authenticator()
        authenticator.handshake(name, 0)
        answers.add(authenticator.authenticate(b"n,,n=alice,r=client", 0))
    assert len(answers) == 5
    logins.close()

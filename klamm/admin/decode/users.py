"""Decodes the users who log in by SCRAM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klamm.admin.types.users import ScramCredentialInfo, UserScramCredentialsDescription
from klamm.security.sasl.scram_keys import ScramMechanism
from klamm.wire.v1 import controller_pb2


def user_scram_credentials(user: controller_pb2.DescribedUserScramCredentials) -> UserScramCredentialsDescription:
    """Returns a user's credentials, without the mechanisms that this client does not know."""
    return UserScramCredentialsDescription(user.name, tuple(_known(user.credentials)))


def _known(credentials: Iterable[controller_pb2.ScramCredentialInfo]) -> Iterator[ScramCredentialInfo]:
    for credential in credentials:
        mechanism = ScramMechanism.of_number(credential.mechanism)
        if mechanism is not None:
            yield ScramCredentialInfo(mechanism, credential.iterations)

"""The Admin's part about users who log in by SCRAM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from klamm.admin import decode
from klamm.admin.calls import raise_first_error
from klamm.process import PROCESS
from klamm.threads.in_thread import in_thread
from klamm.wire.v1 import controller_pb2
from klamm.wire.v1.controller_rpc import AdminStub

if TYPE_CHECKING:
    from klamm.admin.calls import AdminCalls
    from klamm.admin.types import (
        UserScramCredentialDeletion,
        UserScramCredentialsDescription,
        UserScramCredentialUpsertion,
    )

SALT_BYTES: Final = 32


class UserOperations:
    """The Admin's calls about users and their credentials. A user without credentials does not exist."""

    _calls: AdminCalls

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Applies one change to each user. To change a password for both mechanisms takes two calls, as in Kafka.

        Raises UnacceptableCredentialError, ResourceNotFoundError, DuplicateResourceError or
        UnsupportedSaslMechanismError. The changes of other users are applied nevertheless."""
        # Hashing a password takes milliseconds of CPU; a script may set many.
        request = await in_thread(_request, list(alterations))
        response = await self._calls.controller(AdminStub.alter_user_scram_credentials, request, timeout_ms)
        raise_first_error((result.name, result) for result in response.results)

    async def describe_user_scram_credentials(
        self, users: Iterable[str] = (), *, timeout_ms: int | None = None
    ) -> dict[str, UserScramCredentialsDescription]:
        """Returns the credentials of each named user by name, or of all users if no names are given. Raises
        ResourceNotFoundError."""
        request = controller_pb2.DescribeUserScramCredentialsRequest(users=list(users))
        response = await self._calls.controller(AdminStub.describe_user_scram_credentials, request, timeout_ms)
        raise_first_error((user.name, user) for user in response.users)
        return {user.name: decode.user_scram_credentials(user) for user in response.users}


def _request(
    alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
) -> controller_pb2.AlterUserScramCredentialsRequest:
    from klamm.admin.types import UserScramCredentialDeletion

    request = controller_pb2.AlterUserScramCredentialsRequest()
    for alteration in alterations:
        if isinstance(alteration, UserScramCredentialDeletion):
            request.deletions.add(name=alteration.user, mechanism=alteration.mechanism.number)
        else:
            request.upsertions.append(_upsertion(alteration))
    return request


def _upsertion(upsertion: UserScramCredentialUpsertion) -> controller_pb2.ScramCredentialUpsertion:
    from klamm.secret import Secret
    from klamm.security.sasl.scram_keys import salted_password

    mechanism, iterations = upsertion.credential_info.mechanism, upsertion.credential_info.iterations
    salt = PROCESS.get().randbytes(SALT_BYTES) if upsertion.salt is None else upsertion.salt
    # The server refuses such a number of iterations, so do not hash with it.
    salted = salted_password(mechanism, Secret(upsertion.password), salt, iterations) if iterations > 0 else b""
    return controller_pb2.ScramCredentialUpsertion(
        name=upsertion.user,
        mechanism=mechanism.number,  # type: ignore[arg-type]  # stubs want the enum's NewType
        iterations=iterations,
        salt=salt,
        salted_password=salted,
    )

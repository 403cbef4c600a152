"""The errors with which a controller would refuse a user's credentials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from klamm.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from klamm.admin import ScramCredentialInfo


def credential_errors(user: str, infos: Iterable[ScramCredentialInfo]) -> Iterator[BrokerError]:
    """Yields the error of each credential that the user cannot get."""
    from klamm.security.sasl.scram_keys import MAX_ITERATIONS, MIN_ITERATIONS

    refused = ErrorCode.UNACCEPTABLE_CREDENTIAL
    if not user:
        yield refused.exception("Username must not be empty")
        return
    for info in infos:
        if info.iterations < MIN_ITERATIONS:
            yield refused.exception(f"{user}: Too few iterations")
        elif info.iterations > MAX_ITERATIONS:
            yield refused.exception(f"{user}: Too many iterations")

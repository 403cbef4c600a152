"""Finds the quota of a client: the first of eight that is set, the most specific first (KIP-55).

The table also shows which clients share a quota.

| set for                         | shared by                                          |
|---------------------------------|----------------------------------------------------|
| this user and client id         | connections of that user with that client id       |
| this user, any client id        | as above: each client id has all of it             |
| this user                       | all connections of the user                        |
| any user, this client id        | connections of one user with that client id        |
| any user, any client id         | connections of one user with one client id         |
| any user                        | all connections of one user                        |
| this client id                  | connections with that client id, of whatever user  |
| any client id                   | connections with one client id, of whatever user   |

Each key (`klamm.quotas`) is looked up by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from klamm.quotas import CLIENT_ID, IP, USER, QuotaEntity

Quotas = Mapping[QuotaEntity, Mapping[str, float]]
"""The limits by quota key, of each entity that has any."""


KEPT_CLIENT_ID_MAX: Final = 128
"""The longest client id that is kept as it is, in characters. A client chooses its client id, of any length."""


class Quota(NamedTuple):
    """The quota of a client."""

    limit: float
    """The limit per second."""
    sharers: tuple[str, str]
    """The user and the client id of all clients that share the quota. An empty text stands for any. A longer client id
    than `KEPT_CLIENT_ID_MAX` is shortened, and stays different from others."""


def quota_of(quotas: Quotas, key: str, user: str, client_id: str) -> Quota | None:
    """Returns the quota with that key that applies to a client, or None."""
    kept = _shortened(client_id)
    both, of_user, of_client = (user, kept), (user, ""), ("", kept)
    for entity, sharers in (
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, None), (USER, user)), both),
        (((USER, user),), of_user),
        (((CLIENT_ID, client_id), (USER, None)), both),
        (((CLIENT_ID, None), (USER, None)), both),
        (((USER, None),), of_user),
        (((CLIENT_ID, client_id),), of_client),
        (((CLIENT_ID, None),), of_client),
    ):
        limit = quotas.get(entity, {}).get(key)
        if limit is not None:
            return Quota(limit, sharers)
    return None


def _shortened(client_id: str) -> str:
    """Returns the client id, or a short text in its place. Clients cannot choose the hash, which has a random key."""
    if len(client_id) <= KEPT_CLIENT_ID_MAX:
        return client_id
    return f"{client_id[:KEPT_CLIENT_ID_MAX]}#{hash(client_id):x}"


def limit_of_address(quotas: Quotas, key: str, address: str) -> float | None:
    """Returns the limit that applies to an address by itself, or None (KIP-612)."""
    for entity in (((IP, address),), ((IP, None),)):
        limit = quotas.get(entity, {}).get(key)
        if limit is not None:
            return limit
    return None

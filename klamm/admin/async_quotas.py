"""The Admin's part about quotas of clients (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klamm.admin import decode
from klamm.admin.calls import raise_first_error
from klamm.wire.quotas import entity_parts
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.controller_rpc import AdminStub

if TYPE_CHECKING:
    from klamm.admin.calls import AdminCalls
    from klamm.admin.types import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilterComponent

_EXACT, _DEFAULT, _SPECIFIED = range(3)


class QuotaOperations:
    """The Admin's calls about quotas. A quota limits the use of each broker by a client."""

    _calls: AdminCalls

    async def describe_client_quotas(
        self,
        components: Iterable[ClientQuotaFilterComponent] = (),
        *,
        strict: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Returns the quota values by key, for each entity that matches `components`. With `strict`, an entity must not
        have other components. Empty `components` match all entities.

        Raises InvalidRequestError, or UnsupportedVersionError for an unknown entity type."""
        request = pb.DescribeClientQuotasRequest(components=map(_component, components), strict=strict)
        response = await self._calls.controller(AdminStub.describe_client_quotas, request, timeout_ms)
        return {decode.quota_entity(entry.entity): dict(entry.values) for entry in response.entries}

    async def alter_client_quotas(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Changes quotas. The changes of one entity are applied together or not at all. Removing a quota that does not
        exist is no error.

        Raises InvalidRequestError. Changes of other entities are applied nevertheless."""
        request = pb.AlterClientQuotasRequest(
            alterations=[
                pb.ClientQuotaAlteration(
                    entity=entity_parts(alteration.entity.entries),
                    operations=[
                        pb.ClientQuotaOperation(key=key, value=value) for key, value in alteration.operations.items()
                    ],
                )
                for alteration in alterations
            ],
            validate_only=validate_only,
        )
        response = await self._calls.controller(AdminStub.alter_client_quotas, request, timeout_ms)
        raise_first_error((str(decode.quota_entity(result.entity)), result) for result in response.results)


def _component(wanted: ClientQuotaFilterComponent) -> pb.QuotaFilterComponent:
    if wanted.any_name:
        return pb.QuotaFilterComponent(type=wanted.entity_type, match_type=_SPECIFIED)
    match_type = _DEFAULT if wanted.name is None else _EXACT
    return pb.QuotaFilterComponent(type=wanted.entity_type, match_type=match_type, match=wanted.name)

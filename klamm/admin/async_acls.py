"""The Admin's part about access control entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klamm.acls import AclBinding, AclBindingFilter, AclDecision, AclOperation, ResourceType
from klamm.admin.calls import raise_first_error
from klamm.wire.acls import binding_message, binding_of, decision_of, filter_message
from klamm.wire.v1 import controller_pb2
from klamm.wire.v1.controller_rpc import AdminStub

if TYPE_CHECKING:
    from klamm.admin.calls import AdminCalls


class AclOperations:
    """The Admin's calls about access control lists. All raise SecurityDisabledError if the cluster has no
    authorizer."""

    _calls: AdminCalls

    async def create_acls(self, acls: Iterable[AclBinding], *, timeout_ms: int | None = None) -> None:
        """Adds ACL entries. An entry that exists already is not an error (Kafka's createAcls).

        Raises InvalidRequestError for an invalid entry. The other entries are created nevertheless."""
        wanted = list(acls)
        request = controller_pb2.CreateAclsRequest(
            creations=map(binding_message, wanted), timeout_ms=self._calls.timeout_ms(timeout_ms)
        )
        response = await self._calls.controller(AdminStub.create_acls, request, timeout_ms)
        raise_first_error((str(acl), result) for acl, result in zip(wanted, response.results, strict=True))

    async def describe_acls(
        self, wanted: AclBindingFilter | None = None, *, timeout_ms: int | None = None
    ) -> tuple[AclBinding, ...]:
        """Returns the entries that match the filter, or all entries without a filter (Kafka's describeAcls). Raises
        InvalidRequestError."""
        request = controller_pb2.DescribeAclsRequest(filter=filter_message(wanted or AclBindingFilter()))
        response = await self._calls.controller(AdminStub.describe_acls, request, timeout_ms)
        return tuple(map(binding_of, response.acls))

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: int | None = None
    ) -> dict[AclBindingFilter, tuple[AclBinding, ...]]:
        """Deletes the entries that match each filter, and returns them (Kafka's deleteAcls).

        Raises InvalidRequestError for a filter with unknown values. The entries that match the other filters are
        deleted nevertheless."""
        wanted = list(filters)
        request = controller_pb2.DeleteAclsRequest(
            filters=map(filter_message, wanted), timeout_ms=self._calls.timeout_ms(timeout_ms)
        )
        response = await self._calls.controller(AdminStub.delete_acls, request, timeout_ms)
        raise_first_error(
            (str(acl_filter), result) for acl_filter, result in zip(wanted, response.results, strict=True)
        )
        return {
            acl_filter: tuple(map(binding_of, result.removed))
            for acl_filter, result in zip(wanted, response.results, strict=True)
        }

    async def check_acl(
        self,
        principal: str,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        host: str = "",
        timeout_ms: int | None = None,
    ) -> AclDecision:
        """Returns whether `principal` (`Type:name`) may perform the operation, and the rule that decides. The active
        controller's settings apply.

        Without `host`, the client's address matches only the entries for every host. Raises InvalidRequestError."""
        request = controller_pb2.CheckAclRequest(
            principal=principal,
            host=host,
            operation=operation,
            resource_type=resource_type,
            resource_name=resource_name,
        )
        return decision_of(await self._calls.controller(AdminStub.check_acl, request, timeout_ms))

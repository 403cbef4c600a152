"""A controller that decides about access control entries as the real one, without its log."""

from __future__ import annotations

import random
from typing import Any

from klamm.errors import ErrorCode, raise_for
from klamm_controller.metadata.acls import check_acl, describe_acls, handle_create_acls, handle_delete_acls
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.security.acls.authorizer import StandardAuthorizer


class AclController:
    """A controller for ACLs, with the super user `User:root`. With a code, it refuses every request with the text "as
    it was told". It replaces a broker's connection to a controller (`ask`, `change`), and a client's (`controller`)."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self._code = code
        self._image = MetadataImage.empty()

    async def ask(self, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        answer = self._answer(rpc.__name__, request)
        raise_for(answer.error_code, answer.error_message)
        return answer

    async def change(self, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        return await self.ask(rpc, request, timeout_ms=timeout_ms)

    async def controller(self, rpc: Any, request: Any, timeout_ms: int | None = None) -> Any:
        return await self.ask(rpc, request, timeout_ms=self.timeout_ms(timeout_ms))

    def timeout_ms(self, timeout_ms: int | None) -> int:
        return 1_000 if timeout_ms is None else timeout_ms

    def _answer(self, name: str, request: Any) -> Any:
        raise_for(self._code, "as it was told")
        if name == "describe_acls":
            return describe_acls(request, self._image)
        if name == "check_acl":
            authorizer = StandardAuthorizer(super_users=["User:root"], allow_everyone_if_no_acl_found=False)
            return check_acl(request, self._image, authorizer)
        decision: Any
        if name == "create_acls":
            decision = handle_create_acls(request, self._image, random.Random(self._image.end_index))
        else:
            assert name == "delete_acls"
            decision = handle_delete_acls(request, self._image)
        self._image = replay(self._image, decision.records, self._image.end_index + len(decision.records))
        return decision.reply

"""Writes changes that a broker makes itself to the audit log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from klamm.acls import ResourceType
from klamm.errors import ErrorCode
from klamm_server.security.audit.changes import change
from klamm_server.security.audit.events import Activity
from klamm_server.security.session import record_change

_RECORDED_ALREADY = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class _Changed(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def error_code(self) -> ErrorCode: ...


def record_changes(api: str, activity: Activity, changed: Iterable[_Changed]) -> None:
    """Writes one audit event for each partition that the caller wanted to change, with the error code of its answer."""
    for partition in changed:
        if partition.error_code is not _RECORDED_ALREADY:
            name = f"{partition.topic}-{partition.partition}"
            record_change(change(activity, ResourceType.TOPIC, name, partition.error_code, api=api))

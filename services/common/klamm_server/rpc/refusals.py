"""The answers to a caller when a servicer raises. Expected outcomes are error codes in the answer, not exceptions."""

from __future__ import annotations

import logging

from klamm.errors import KlammError
from klamm.rpc.status import CallFailed, Status
from klamm_server.runtime.event_queue import QueueFullError

log = logging.getLogger(__name__)


def failure_of(path: str, error: Exception) -> CallFailed:
    """Returns the failure for a servicer's exception. A CallFailed stays as it is. A full queue lets the caller retry.
    Any other KlammError is a malformed request. Other exceptions are bugs, and are logged with the call's path."""
    if isinstance(error, CallFailed):
        return error
    if isinstance(error, QueueFullError):
        return CallFailed(Status.RESOURCE_EXHAUSTED, str(error))
    if isinstance(error, KlammError):
        log.info("refused a malformed request, rpc=%s error=%s", path, error)
        return CallFailed(Status.INVALID_ARGUMENT, str(error))
    log.error("rpc=%s failed with an internal error", path, exc_info=error)
    return CallFailed(Status.INTERNAL, f"{type(error).__name__}: {error}")

"""Connects a command to the cluster. If no server answers, the command ends after `--timeout`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from klamm.errors import EXCEPTIONS, ErrorCode, NoBrokerError
from klamm_cli.console.command_config import client_settings
from klamm_cli.console.output import one_line_errors

if TYPE_CHECKING:
    from klamm import Admin

_OPERATION_TIMEOUT_MS: Final = 30_000
"""The time-out of requests once the cluster has answered. A group's coordinator may still have to load."""


def _admin(bootstrap: str) -> Admin:
    from klamm import Admin

    return Admin({"default.api.timeout.ms": _OPERATION_TIMEOUT_MS, **client_settings(bootstrap)})


@contextmanager
def connected(bootstrap: str, timeout_s: float) -> Iterator[Admin]:
    """Yields an Admin client after the cluster has answered within `timeout_s`.

    An error of the client library, here or in the body of the `with`, ends the command with one line."""
    with one_line_errors(bootstrap), _admin(bootstrap) as admin:
        try:
            admin.describe_cluster(timeout_ms=round(timeout_s * 1000))
        except EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT]:
            raise NoBrokerError(f"{bootstrap}: no answer in {timeout_s:g} s") from None
        yield admin

"""Writes the log `klamm.authorizer`: the authorizer's decisions in the words of Kafka's log `kafka-authorizer.log`.

It is for tools that read Kafka's log. The lines are made from the audit's events. So equal decisions of a minute are
one line, and their number is its resourceRefCount. Logins and changes have no line here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm.printable import printable
from klamm_server.security.audit.events import DEFAULT, NO_ACL_ALLOWS, SUPER_USER
from klamm_server.security.audit_log import AuditLog

LOGGER: Final = "klamm.authorizer"
KAFKAS_LOGGER: Final = "kafka.authorizer.logger"
"""The logger's name in the lines, which tools look for."""
_RULES: Final = {
    (SUPER_USER, "Allowed"): "SuperUser",
    (DEFAULT, "Allowed"): "DefaultAllow",
    (DEFAULT, "Denied"): "DefaultDeny",
    (NO_ACL_ALLOWS, "Denied"): "DefaultDeny",
}


class AuthorizerLog:
    """The output of the log to stderr or, if `path` is not None, to a file (an `AuditOutput`). Raises ConfigError if
    the file cannot be opened."""

    def __init__(self, path: str | None) -> None:
        self._log = AuditLog(path, logger=LOGGER, setting="audit.authorizer.log.file")

    async def write(self, lines: Sequence[bytes]) -> None:
        """Writes the decisions among the lines. Raises OSError if the file cannot be written."""
        decisions = [line.encode() for line in map(authorizer_line, lines) if line]
        if decisions:
            await self._log.write(decisions)

    async def close(self) -> None:
        await self._log.close()


def authorizer_line(line: bytes) -> str:
    """Returns Kafka's line for an audit event, or empty text if the event is no decision (StandardAuthorizerData)."""
    event = json.loads(line)
    authorizations = event.get("actor", {}).get("authorizations")
    if not authorizations:
        return ""
    decision, rule = authorizations[0]["decision"], authorizations[0]["policy"]["name"]
    (resource,) = event["resources"]
    sentence = (
        f"Principal = {_principal(event)} is {decision} operation = {event['unmapped']['operation']}"
        f" from host = {event['src_endpoint']['ip']} on resource = {_pascal_case(resource['type'])}:LITERAL:"
        f"{resource['name']} for request = {_request(event['api']['operation'])}"
        f" with resourceRefCount = {event['count']} based on rule {_rule(rule, decision)}"
    )
    level = "INFO" if decision == "Denied" else "DEBUG"
    return f"[{_time(event['time'])}] {level} {printable(sentence)} ({KAFKAS_LOGGER})"


def _principal(event: Mapping[str, Any]) -> str:
    user = event["actor"]["user"]
    return f"{user['type']}:{user['name']}"


def _pascal_case(name: str) -> str:
    """Returns TransactionalId for `TRANSACTIONAL_ID`."""
    return name.title().replace("_", "")


def _request(api: str) -> str:
    """Returns Kafka's name of a request. Calls between servers have such names already."""
    return _pascal_case(api) if api.isupper() else api


def _rule(rule: str, decision: str) -> str:
    return _RULES.get((rule, decision)) or f"MatchingAcl(acl={rule})"


def _time(time_ms: int) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(time_ms // 1000))},{time_ms % 1000:03d}"

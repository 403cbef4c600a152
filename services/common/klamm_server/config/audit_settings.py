"""The settings of a server's audit: the recorded events, the outputs, and the treatment of failures.

Kafka has none of these settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klamm.setting import Validator, boolean, text, text_list

EVENTS: Final = ("authentication", "authorization.denied", "authorization.allowed", "produce", "consume", "management")
OUTPUTS: Final = ("log", "topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The settings of every server's audit."""

    audit_enable: bool = boolean(
        False,
        doc="Whether the audit tells of logins, refusals and changes. Without an authorizer it tells of logins only:"
        " servers then do not say for which client they call. Ours.",
    )
    audit_events: tuple[str, ...] = text_list(
        ("authentication", "authorization.denied", "management"),
        valid=Validator(
            f"a list of {', '.join(EVENTS)}, at least one", lambda value: bool(value) and set(value) <= set(EVENTS)
        ),
        doc="What the audit tells of: logins, refusals, changes of topics, configs, users and their like; and, if"
        " wanted, writes to topics (produce), reads of them (consume), and what else is allowed"
        " (authorization.allowed). Equal events are told at once and then once a minute, with their count. Ours.",
    )
    audit_excluded_principals: str = text(
        "",
        valid=Validator(
            "TYPE:NAME with semicolons between them, as User:admin;User:CN=broker,O=shop",
            lambda value: all(":" in one for one in value.split(";") if one.strip()),
        ),
        doc="Principals of whom nothing is told but their logins, with semicolons between them. Ours.",
    )
    audit_excluded_topics: tuple[str, ...] = text_list(
        (), doc="Topics whose reads and writes, and refusals of these, the audit does not tell of. Ours."
    )
    audit_output: tuple[str, ...] = text_list(
        OUTPUTS,
        valid=Validator(
            f"a list of {' and '.join(OUTPUTS)}, at least one", lambda value: bool(value) and set(value) <= set(OUTPUTS)
        ),
        doc="Where events go, as JSON objects of OCSF: the log klamm.audit, a line each, and the topic __klamm_audit, a"
        " record each. The topic is internal: it has 3 partitions, offsets.topic.replication.factor replicas and keeps"
        " records for 7 days; a principal with the right to READ it can read it, and only servers write to it. Ours.",
    )
    audit_log_file: str | None = text(
        None,
        doc="The file of the log klamm.audit, which nobody else may read, and which may be moved away while it is"
        " written; unless set, it goes to stderr. Ours.",
    )

    def audit_excluded_principal_names(self) -> frozenset[str]:
        """The principals that `audit.excluded.principals` names."""
        return frozenset(one.strip() for one in self.audit_excluded_principals.split(";") if one.strip())

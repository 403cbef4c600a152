"""The settings of a server's audit: the recorded events, the outputs, and the treatment of failures.

Kafka has none of these settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klamm.setting import Validator, boolean, one_of, text, text_list

EVENTS: Final = ("authentication", "authorization.denied", "authorization.allowed", "produce", "consume", "management")
OUTPUTS: Final = ("log", "topic", "authorizer")
PERMIT, REJECT = "permit", "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The settings of every server's audit."""

    audit_enable: bool = boolean(
        False,
        doc="Whether the server writes audit events for logins, refusals and changes. Without an"
        " authorizer, it writes events for logins only, because servers then do not name the client"
        " for which they call each other. Klamm's own setting; Kafka has none.",
    )
    audit_events: tuple[str, ...] = text_list(
        ("authentication", "authorization.denied", "management"),
        valid=Validator(
            f"a list of {', '.join(EVENTS)}, at least one", lambda value: bool(value) and set(value) <= set(EVENTS)
        ),
        doc="The kinds of events that the audit writes. authentication: logins. authorization.denied:"
        " refusals. management: changes of topics, configs, users and similar. Optional: produce"
        " (writes to topics), consume (reads of topics) and authorization.allowed (all other"
        " allowed operations). Of equal events, the audit writes the first one at once, and then"
        " their count once a minute. Klamm's own setting; Kafka has none.",
    )
    audit_excluded_principals: str = text(
        "",
        valid=Validator(
            "TYPE:NAME with semicolons between them, as User:admin;User:CN=broker,O=shop",
            lambda value: all(":" in principal for principal in value.split(";") if principal.strip()),
        ),
        doc="Principals, separated by semicolons, of which the audit writes only failed logins, because"
        " any client can claim to be such a principal. Klamm's own setting; Kafka has none.",
    )
    audit_excluded_topics: tuple[str, ...] = text_list(
        (),
        doc="Topics whose reads and writes, and the refusals of these, the audit does not write."
        " Klamm's own setting; Kafka has none.",
    )
    audit_output: tuple[str, ...] = text_list(
        ("log", "topic"),
        valid=Validator(
            f"a list of {', '.join(OUTPUTS)}, at least one", lambda value: bool(value) and set(value) <= set(OUTPUTS)
        ),
        doc="Where the audit writes events, as JSON objects of OCSF. log: the log klamm.audit, one line"
        " for each event. topic: the internal topic __klamm_audit, one record for each event. The"
        " topic has 3 partitions, offsets.topic.replication.factor replicas, and keeps records for"
        " 7 days. A principal needs the right READ to read it, and only servers write to it."
        " authorizer: the log klamm.authorizer, which has decisions only, in the words of Kafka's"
        " kafka-authorizer.log, for tools that read that file."
        " Klamm's own setting; Kafka has none.",
    )
    audit_log_file: str | None = text(
        None,
        doc="The file of the log klamm.audit. If it is not set, the log goes to stderr. No other user"
        " may read the file. It may be renamed while the server writes to it, for example by log"
        " rotation. Klamm's own setting; Kafka has none.",
    )
    audit_authorizer_log_file: str | None = text(
        None,
        doc="The file of the log klamm.authorizer, if audit.output contains authorizer. The rules of"
        " audit.log.file hold for it too. Klamm's own setting; Kafka has none.",
    )
    audit_failure_policy: str = text(
        PERMIT,
        valid=one_of(PERMIT, REJECT),
        doc="What the server does when it has dropped audit events because an output does not accept them. permit:"
        " it serves all requests, and counts the dropped events in klamm_audit_dropped_total. reject: it also refuses"
        " requests that change something and would be audited, with POLICY_VIOLATION, until half of the waiting"
        " events are written. Logins, reads, writes of records and the requests of excluded principals go on."
        " Klamm's own setting; Kafka has none.",
    )

    def audit_excluded_principal_names(self) -> frozenset[str]:
        """The principals that `audit.excluded.principals` names."""
        return frozenset(
            principal.strip() for principal in self.audit_excluded_principals.split(";") if principal.strip()
        )

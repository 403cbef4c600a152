"""The page of error codes: cause, remedy, and what a client does by itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

from klamm import errors
from klamm.consumer import errors as consumer_errors
from klamm.errors import BrokerError, ErrorCode, KlammError
from klamm.records import errors as record_errors
from tools.reference.markdown import prose, table
from tools.reference.remedies import NOT_SENT, REMEDIES

HEAD: Final = """# Errors

Every error of Klamm is a `klamm.errors.KlammError`. A server's error is a `BrokerError` with one of Kafka's codes,
and its class has the name of the code: `klamm.errors.NotCoordinatorError` is NOT_COORDINATOR. `str(error)` begins with
the code's name, followed by the server's text. The page is made from `klamm/errors.py` (`python -m tools.reference`).

*Retried* tells whether clients retry by themselves. Klamm's and Kafka's clients do the same: they retry until
`delivery.timeout.ms`, `default.api.timeout.ms` or the deadline of the call. A program sees such an error only if it
lasts longer. *With new metadata* means that the client asks for metadata before the retry. A program finds the same
in `error.retriable`.
"""
_NOT_SENT: Final = """## Codes that Klamm does not send

Kafka sends these codes for features that Klamm does not have, or in calls that Klamm answers in another way. Klamm's
clients know them too.

"""


def page() -> str:
    """The whole text."""
    lines = [HEAD, "## Codes", ""]
    sent = [code for code in ErrorCode if code is not ErrorCode.NONE and code not in NOT_SENT]
    lines += table(("Code", "Name and cause", "What to do", "Retried"), map(_row, sent))
    lines += [_NOT_SENT + ", ".join(f"{code.name} ({code.value})" for code in ErrorCode if code in NOT_SENT) + ".", ""]
    lines += [
        "## Errors without a code",
        "",
        "A client raises these errors by itself, without an answer of a server.",
        "",
    ]
    lines += table(("Error", "What happened", "Module"), _own_errors())
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(code: ErrorCode) -> tuple[str, str, str, str]:
    retried = ("yes, with new metadata" if code.refresh_metadata else "yes") if code.retriable else "no"
    return str(code.value), f"`{code.name}`<br>{prose(code.text)}", prose(REMEDIES[code]), retried


def _own_errors() -> Iterator[tuple[str, str, str]]:
    for module in (errors, consumer_errors, record_errors):
        for name, owner in vars(module).items():
            if not (inspect.isclass(owner) and issubclass(owner, KlammError) and owner.__module__ == module.__name__):
                continue
            if owner is not KlammError and owner is not BrokerError and not hasattr(owner, "code"):
                yield f"`{name}`", prose(inspect.getdoc(owner) or ""), f"`{module.__name__}`"

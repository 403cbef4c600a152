"""Tests where names in the tables of the site may break into lines."""

from __future__ import annotations

import pytest

from tools.docs_tables import with_breaks


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("<code>log.message.timestamp.before</code>", "<code>log.<wbr>message.<wbr>timestamp.<wbr>before</code>"),
        ("<code>UNKNOWN_TOPIC_OR_PARTITION</code>", "<code>UNKNOWN_<wbr>TOPIC_<wbr>OR_<wbr>PARTITION</code>"),
        ("TLSv1.2,TLSv1.3,more", "TLSv1.<wbr>2,<wbr>TLSv1.<wbr>3,<wbr>more"),
        ("<code>AlterConfigsOfTopicsRequest</code>", "<code>Alter<wbr>Configs<wbr>Of<wbr>Topics<wbr>Request</code>"),
        ("<code>retention.ms</code> of a topic", "<code>retention.ms</code> of a topic"),
        ('<a href="../log.message.timestamp.before/">here</a>', '<a href="../log.message.timestamp.before/">here</a>'),
        (
            "a sentence that ends with a.very.long.name.here.",
            "a sentence that ends with a.<wbr>very.<wbr>long.<wbr>name.<wbr>here.",
        ),
    ],
)
def test_long_names_may_break_after_their_parts(written: str, shown: str) -> None:
    assert with_breaks(f"<tr><td>{written}</td></tr>") == f"<tr><td>{shown}</td></tr>"


def test_names_outside_of_tables_stay() -> None:
    page = "<p>log.message.timestamp.before.max.ms</p>"
    assert with_breaks(page) == page

"""What people read in this repository is in plain English, as far as a program can tell."""

from __future__ import annotations

from tools.plain_english import ROOT, files, findings_in


def test_nothing_has_to_be_translated() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{finding.line}: {finding.pattern.advice}: {finding.words}"
        for path in files([ROOT])
        for finding in findings_in(path)
    ]
    assert not found, "\n".join(found)

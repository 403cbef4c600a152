"""A slice of `tests/fuzz/core.py`: the compiled core under the sanitizers. A planted bug shows that they report."""

from __future__ import annotations

import pathlib

import pytest

from tests.fuzz import core
from tests.support import sanitized_core
from tests.support.seeds import run_seed
from tools import build_core

pytestmark = [
    pytest.mark.skipif(sanitized_core.missing() is not None, reason=str(sanitized_core.missing())),
    pytest.mark.slow,
]

SLICE = 20_000
WHOLE = "while at < end and shift < (35 if bits == 32 else 70):"
PLANTED = "while shift < (35 if bits == 32 else 70):"
"""`get_varint` without a check of the end. It reads on behind a number that is cut off."""


def test_a_slice_of_inputs_has_the_outcomes_of_pure_python_and_no_report(tmp_path: pathlib.Path) -> None:
    sanitized_core.build(tmp_path)
    core.fuzz(tmp_path, seed=run_seed(), first=0, inputs=SLICE)


def test_a_planted_read_behind_the_end_is_reported_with_its_input(tmp_path: pathlib.Path) -> None:
    source = (build_core.ROOT / "klamm" / "_core.pyx").read_text()
    assert source.count(WHOLE) == 1
    (tmp_path / "klamm").mkdir()
    (tmp_path / "klamm" / "__init__.py").touch()
    (tmp_path / "klamm" / "_core.pyx").write_text(source.replace(WHOLE, PLANTED))
    target = tmp_path / "target"
    sanitized_core.build(target, tmp_path)

    with pytest.raises(core.Finding, match=r"(?s)heap-buffer-overflow.*READ of size 1.*again: python tests/fuzz"):
        core.fuzz(target, seed=run_seed(), first=0, inputs=SLICE)

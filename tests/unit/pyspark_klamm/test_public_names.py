"""Tests the names that programs import from the package."""

from __future__ import annotations

import importlib
import pydoc
import subprocess
import sys

import pyspark_klamm


def test_public_names_are_functions_with_documentation_also_after_their_modules_were_imported():
    from pyspark_klamm import from_klamm, local, local_session, payloads

    assert from_klamm is payloads.from_klamm
    assert local_session is local.local_session
    shown = pydoc.plain(pydoc.render_doc(pyspark_klamm))
    for name in ("from_klamm(frame: ", "local_session(", "source_metrics(", "offsets_behind_latest("):
        assert f"    {name}" in shown
    public = importlib.import_module("pyspark_klamm").__all__
    assert all(getattr(pyspark_klamm, name).__doc__ for name in public)


def test_a_worker_does_not_load_the_helpers_of_programs():
    program = (
        "import sys, pyspark_klamm; print([each for each in sys.modules if each.startswith('pyspark_klamm.') and"
        " each.endswith(('local', 'payloads', 'progress'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

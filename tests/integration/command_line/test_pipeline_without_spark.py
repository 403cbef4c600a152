"""`klamm pipeline run` in a Python process where pyspark cannot be imported."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import patience


def test_without_spark_the_extra_to_install_is_named(tmp_path):
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        f"sys.argv = ['klamm', 'pipeline', 'run', 'flight_delays', '--checkpoint', {str(tmp_path)!r}]\n"
        "from klamm_cli.main import main; main()"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience())
    assert (ended.returncode, ended.stderr) == (1, "klamm: pyspark is missing: pip install 'klamm[spark]'\n")

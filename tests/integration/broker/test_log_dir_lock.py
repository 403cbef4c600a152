"""A broker's log directory has one process at a time that uses it."""

from __future__ import annotations

import subprocess
import sys

from klamm_broker.log.files.dir_lock import DirectoryLock
from klamm_server.runtime.disk import Disk
from tests.support.waiting import patience


def test_a_second_process_cannot_lock_a_log_dir_until_the_first_releases_it(tmp_path) -> None:
    lock = DirectoryLock(Disk(), str(tmp_path))
    script = (
        "import sys\n"
        "from klamm_broker.log.files.dir_lock import DirectoryLock\n"
        "from klamm_server.runtime.disk import Disk\n"
        "DirectoryLock(Disk(), sys.argv[1])\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
    assert refused.returncode == 1
    assert "LogDirError" in refused.stderr
    lock.release()
    assert subprocess.run(command, capture_output=True, timeout=patience(), check=False).returncode == 0

"""A controller's data directory has one process at a time that uses it."""

from __future__ import annotations

import random
import subprocess
import sys

from klamm_controller.log.data_dir import open_data_dir
from klamm_server.runtime.disk import Disk
from tests.support.waiting import patience


def test_a_second_process_cannot_open_a_data_directory_in_use(tmp_path):
    holder = open_data_dir(tmp_path, node_id=1, cluster_id="", disk=Disk(), rng=random.Random(1))
    script = (
        "import sys, pathlib, random\n"
        "from klamm.errors import KlammError\n"
        "from klamm_controller.log.data_dir import open_data_dir\n"
        "from klamm_server.runtime.disk import Disk\n"
        "try:\n"
        "    path = pathlib.Path(sys.argv[1])\n"
        "    open_data_dir(path, node_id=1, cluster_id='', disk=Disk(), rng=random.Random(1))\n"
        "except KlammError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=True, timeout=patience())
    assert "is in use by another process" in refused.stdout
    holder.close()
    accepted = subprocess.run(command, capture_output=True, text=True, check=True, timeout=patience())
    assert accepted.stdout == ""

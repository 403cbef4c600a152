"""A PostgreSQL server for tests, where the machine has the program."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

from tests.support.waiting import wait_until

USER = "postgres"


def programs() -> str | None:
    """Returns the directory of `initdb` and `postgres`, or None."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    path = shutil.which("initdb") or (str(found[-1]) if found else None)
    return None if path is None else str(pathlib.Path(path).resolve().parent)


@contextlib.contextmanager
def running_postgres(bin_dir: str) -> Iterator[str]:
    """Yields the connection string of a new server, which listens on a UNIX socket only. PostgreSQL does not run as
    root, so it runs as the user of its package then."""
    # The folder of the run belongs to root, and another user has no way into it.
    directory = tempfile.mkdtemp(prefix="klamm-tests-postgres-", dir="/tmp")
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        account = pwd.getpwnam(USER)
        os.chown(directory, account.pw_uid, account.pw_gid)
        as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    data = f"{directory}/data"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": directory}
    try:
        subprocess.run(
            [f"{bin_dir}/initdb", "--pgdata", data, "--username", USER, "--auth", "trust"],
            check=True,
            **quiet,
            **as_user,
        )
        command = [f"{bin_dir}/postgres", "-D", data, "-k", directory, "-c", "listen_addresses="]
        with subprocess.Popen(command, **quiet, **as_user) as server:
            try:
                ready = [f"{bin_dir}/pg_isready", "--host", directory, "--quiet"]
                wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, "PostgreSQL is not ready")
                yield f"host={directory} user={USER} dbname=postgres"
            finally:
                server.terminate()
    finally:
        shutil.rmtree(directory)

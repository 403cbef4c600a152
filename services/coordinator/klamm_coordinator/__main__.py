"""`klamm-coordinator`, or `python -m klamm_coordinator`: one coordinator process."""

from __future__ import annotations

import sys

from klamm_server.runtime.garbage import loading


def run() -> int:
    """Runs the coordinator process and returns its exit status."""
    with loading():
        from klamm_coordinator.config import CoordinatorConfig
        from klamm_coordinator.server import CoordinatorServer
        from klamm_server.main import main
    return main("klamm-coordinator", CoordinatorConfig, CoordinatorServer)


if __name__ == "__main__":
    sys.exit(run())

"""`klamm-controller`, or `python -m klamm_controller`: one controller process."""

from __future__ import annotations

import sys

from klamm_server.runtime.garbage import loading


def run() -> int:
    """Runs the controller until it ends, and returns the exit status."""
    with loading():
        from klamm_controller.config import ControllerConfig
        from klamm_controller.server import ControllerServer
        from klamm_server.main import main
    return main("klamm-controller", ControllerConfig, ControllerServer)


if __name__ == "__main__":
    sys.exit(run())

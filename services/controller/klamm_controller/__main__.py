"""`python -m klamm_controller --config FILE`: one controller process."""

from __future__ import annotations

import sys

from klamm_controller.config import ControllerConfig
from klamm_controller.server import ControllerServer
from klamm_server.main import main

if __name__ == "__main__":
    sys.exit(main("klamm_controller", ControllerConfig, ControllerServer))

"""`python -m klamm_coordinator --config coordinator.properties`"""

from __future__ import annotations

import sys

from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.server import CoordinatorServer
from klamm_server.main import main

sys.exit(main("klamm_coordinator", CoordinatorConfig, CoordinatorServer))

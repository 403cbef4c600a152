"""`python -m klamm_broker --config broker.properties`"""

from __future__ import annotations

import sys

from klamm_broker.config import BrokerConfig
from klamm_broker.server import BrokerServer
from klamm_server.main import main

sys.exit(main("klamm_broker", BrokerConfig, BrokerServer))

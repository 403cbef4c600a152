"""Runs one broker process, or several on one host: `klamm-broker`, or `python -m klamm_broker`."""

from __future__ import annotations

import sys

from klamm_server.runtime.garbage import loading


def run() -> int:
    """Runs the broker. Returns the exit status."""
    with loading():
        from klamm_broker.processes.host import HostProcesses
        from klamm_broker.server import BrokerServer
        from klamm_server.config.broker_configs import BrokerConfig
        from klamm_server.main import main
    return main("klamm-broker", BrokerConfig, BrokerServer, several=HostProcesses())


if __name__ == "__main__":
    sys.exit(run())

"""What every server tells of itself: its version and its clock, which no other call would show to be wrong."""

from __future__ import annotations

import platform
import resource
import time
from typing import Any

from klamm.version import __version__
from klamm.wire.v1.common_pb2 import DescribeServerRequest, DescribeServerResponse


class ServerServicer:
    """What `RpcServer.add_service(SERVER, ...)` takes."""

    async def describe_server(self, request: DescribeServerRequest, context: Any) -> DescribeServerResponse:
        return DescribeServerResponse(
            version=__version__,
            python_version=platform.python_version(),
            time_ms=time.time_ns() // 1_000_000,
            open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )

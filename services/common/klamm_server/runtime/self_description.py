"""The service with which every server reports its version and its clock. No other call shows that they are wrong."""

from __future__ import annotations

import platform
import resource

from klamm.process import PROCESS
from klamm.version import __version__
from klamm.wire.calls import CallContext
from klamm.wire.v1.common_pb2 import DescribeServerRequest, DescribeServerResponse


class ServerServicer:
    """The servicer for `RpcServer.add_service(SERVER, ...)`."""

    def __init__(self, *, is_migrating: bool) -> None:
        self.has_authorizer = False
        self._is_migrating = is_migrating

    async def describe_server(self, request: DescribeServerRequest, context: CallContext) -> DescribeServerResponse:
        return DescribeServerResponse(
            version=__version__,
            python_version=platform.python_version(),
            time_ms=PROCESS.get().wall_ms(),
            open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            has_authorizer=self.has_authorizer,
            is_migrating=self._is_migrating,
        )

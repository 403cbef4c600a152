"""The limit of open files of this process, and the parts of it that connections may use.

Without these parts, a stranger could use up the limit with connections, and the process could open no files."""

from __future__ import annotations

import resource

from klamm.setting import INT_MAX


def raise_open_files_limit() -> None:
    """Raises the limit of open files as far as the system allows. A partition keeps its segments open, and the usual
    soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def kafka_connections_max() -> int:
    """Returns the maximum number of connections of Kafka clients: half of the limit of open files."""
    return _open_files_max() // 2


def grpc_connections_max() -> int:
    """Returns the maximum number of connections to all gRPC listeners: a quarter of the limit of open files."""
    return _open_files_max() // 4


def _open_files_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return INT_MAX if soft == resource.RLIM_INFINITY else soft

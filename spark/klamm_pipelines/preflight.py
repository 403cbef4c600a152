"""Checks the clusters of a pipeline before Spark starts. Spark takes seconds to start, and reports such errors less
clearly."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError, NoBrokerError

if TYPE_CHECKING:
    from klamm import Admin

Settings = Mapping[str, str]

CONNECT_S: Final = 1.2
"""How long a server may take to accept a connection, in seconds."""
ANSWER_MS: Final = 10_000
"""How long a server that accepted a connection may take to answer, because it may be busy."""
_AUTO_CREATE: Final = "auto.create.topics.enable"
_TIMED_OUT: Final = EXCEPTIONS[ErrorCode.REQUEST_TIMED_OUT]


@contextmanager
def reached(settings: Settings, option: str) -> Iterator[Admin]:
    """Provides an Admin of a cluster that answers. `option` names the servers in errors. Raises ConfigError or
    NoBrokerError."""
    from klamm import Admin

    servers = settings["bootstrap.servers"]
    with Admin(settings) as admin:
        _require_connection(servers, option)
        try:
            admin.describe_cluster(timeout_ms=ANSWER_MS)
        except (NoBrokerError, _TIMED_OUT) as error:
            reason = str(error).rpartition(": ")[2]
            raise NoBrokerError(f"no server answers at {option} {servers} ({reason})") from None
        yield admin


def _require_connection(servers: str, option: str) -> None:
    """Raises NoBrokerError unless one of the servers accepts a connection."""
    addresses = [server.strip().rpartition(":") for server in servers.split(",") if server.strip()]
    pool = ThreadPoolExecutor(len(addresses))
    try:
        tried = as_completed([pool.submit(_connect, host.strip("[]"), int(port)) for host, _, port in addresses])
        reasons = []
        for future in tried:
            if (reason := future.result()) is None:
                return
            reasons.append(reason)
    finally:
        pool.shutdown(wait=False)
    raise NoBrokerError(f"no server answers at {option} {servers} ({', '.join(dict.fromkeys(reasons))})")


def _connect(host: str, port: int) -> str | None:
    """Connects to a server. Returns the reason why this failed, or None if it succeeded."""
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def require_topics(
    settings: Settings, inputs: Iterable[tuple[str, str]], outputs: Iterable[tuple[str, str]] = ()
) -> None:
    """Checks that topics exist. `inputs` and `outputs` are pairs of an option and its topics, separated by commas.
    Outputs need not exist if the cluster creates topics. Raises NoBrokerError, or KlammError with all missing
    topics."""
    with reached(settings, "--bootstrap") as admin:
        there = admin.list_topics(include_internal=True)
        missing = _missing(inputs, there)
        missing_outputs = _missing(outputs, there)
        if missing_outputs and not _creates_topics(admin):
            missing += missing_outputs
    if missing:
        listed = ", ".join(f"{name!r} ({option})" for option, name in missing)
        names = " ".join(dict.fromkeys(name for _, name in missing))
        what, them = ("is no topic", "it") if len(missing) == 1 else ("are no topics", "them")
        raise KlammError(f"there {what} {listed}; `klamm topics create {names}` creates {them}")


def _missing(wanted: Iterable[tuple[str, str]], there: Iterable[str]) -> list[tuple[str, str]]:
    known = set(there)
    pairs = [(option, name.strip()) for option, names in wanted for name in names.split(",")]
    return [(option, name) for option, name in pairs if name not in known]


def _creates_topics(admin: Admin) -> bool:
    from klamm.admin import ConfigResource, ConfigResourceType

    brokers = [broker.node_id for broker in admin.describe_cluster().brokers if not broker.fenced]
    if not brokers:
        return False
    resource = ConfigResource(ConfigResourceType.BROKER, str(brokers[0]))
    described = admin.describe_configs([resource], names=[_AUTO_CREATE])[resource]
    return described[_AUTO_CREATE].value == "true"

"""Finds what a server's settings leave open to other machines. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from klamm_cli.doctor.finding import Finding, warning
from klamm_cli.doctor.server_checks import MIGRATION_ADVICE, is_loopback
from klamm_server.config.server_config import MIGRATION, ServiceConfig

_CHECK = "open"


def check_exposure(path: str, config: ServiceConfig) -> Iterator[Finding]:
    """Yields a warning for what other machines can reach: listeners without encryption, a server without an authorizer,
    and metrics."""
    afar = [listener for listener in config.resolved_listeners().bound if not is_loopback(listener.host)]
    plain = [
        f"{listener.name}://{listener.host}:{listener.port}" for listener in afar if not listener.security.is_encrypted
    ]
    if plain:
        yield warning(
            _CHECK,
            f"{path}: not encrypted, and not for this machine alone: {', '.join(plain)}",
            "anybody on the network between can read and alter everything: use SSL, SASL_SSL, GRPC_SSL or"
            " GRPC_SASL_SSL; `klamm certs dev` makes certificates to try with",
        )
    if config.security_migration_enable:
        yield warning(_CHECK, f"{path}: {MIGRATION} is on", MIGRATION_ADVICE)
    if afar and not config.authorizer_class_name:
        yield warning(
            _CHECK,
            f"{path}: every client that reaches it may do everything: there is no authorizer.class.name",
            "set authorizer.class.name=StandardAuthorizer and super.users at every server, and give rights with"
            " `klamm acls`",
        )
    if config.metrics_port and not is_loopback(config.resolved_metrics_host()):
        yield warning(
            _CHECK,
            f"{path}: metrics, which name topics and groups, are shown to every client of port {config.metrics_port}",
            "set metrics.host to a loopback address, or let nobody but Prometheus through",
        )

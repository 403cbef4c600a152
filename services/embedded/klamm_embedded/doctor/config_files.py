"""A service's properties file: names that nobody knows, values that do not fit, settings that do not fit each other.
Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from klamm.cli.doctor.durability import FACTOR, MIN_ISR, UNCLEAN, check_durability
from klamm.cli.doctor.finding import Finding, ok, problem, warning
from klamm.cli.doctor.server_checks import is_loopback
from klamm.errors import ConfigError
from klamm_broker.config import BrokerConfig
from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.config import ServiceConfig, known_configs, load

_SERVICES: tuple[tuple[str, type[ServiceConfig]], ...] = (
    ("broker", BrokerConfig),
    ("controller", ControllerConfig),
    ("coordinator", CoordinatorConfig),
)
_CHECK = "config"


class CheckedFile(NamedTuple):
    """What was found, and the configuration if a server could start with it."""

    findings: list[Finding]
    config: ServiceConfig | None


def check_config(path: str, properties: Mapping[str, str]) -> CheckedFile:
    """Of the service that knows most of the names."""
    name, service = min(_SERVICES, key=lambda each: len(properties.keys() - known_configs(each[1]).keys()))
    findings = [*_check_names(path, name, service, properties), *_check_values(path, service, properties)]
    known = {key: text for key, text in properties.items() if key in known_configs(service)}
    if findings:
        return CheckedFile(findings, None)
    try:
        config = load(service, known)
    except ConfigError as error:
        return CheckedFile([problem(_CHECK, f"{path}: {error}", "change it, or the server does not start")], None)
    if service is BrokerConfig:
        findings += check_durability(_CHECK, path, _in_force(known), None)
    findings += _check_listeners(path, config)
    return CheckedFile([ok(_CHECK, f"{path}: {len(known)} settings of a {name}"), *findings], config)


def _check_names(
    path: str, name: str, service: type[ServiceConfig], properties: Mapping[str, str]
) -> Iterator[Finding]:
    known = known_configs(service)
    for key in sorted(properties.keys() - known.keys()):
        nearest = difflib.get_close_matches(key, known, n=1)
        advice = f"write {nearest[0]}" if nearest else "remove it"
        yield problem(_CHECK, f"{path}: a {name} has no setting {key}, and does not start with it", advice)


def _check_values(path: str, service: type[ServiceConfig], properties: Mapping[str, str]) -> Iterator[Finding]:
    known = known_configs(service)
    for key, text in sorted(properties.items()):
        try:
            if key in known:
                known[key].parse(text)
        except ConfigError as error:
            yield problem(_CHECK, f"{path}: {error}", "change it, or the server does not start")


def _in_force(properties: Mapping[str, str]) -> dict[str, str]:
    """What decides how safe records are, with the defaults."""
    known = known_configs(BrokerConfig)
    return {name: properties.get(name, known[name].default_text()) for name in (MIN_ISR, FACTOR, UNCLEAN)}


def _check_listeners(path: str, config: ServiceConfig) -> Iterator[Finding]:
    listeners = config.resolved_listeners()
    for listener, dialled in zip(listeners.bound, listeners.advertised, strict=True):
        # Beside another one of its protocol, it may well be for who is on this machine.
        has_another = any(
            one.protocol is listener.protocol and not is_loopback(one.host) for one in listeners.advertised
        )
        if is_loopback(dialled.host) and not is_loopback(listener.host) and not has_another:
            yield warning(
                "listeners",
                f"{path}: it listens on {listener.host or 'every interface'}, and tells others to dial"
                f" {dialled.host}:{dialled.port}, their own loopback",
                f"set advertised.listeners={listener.name}://<an address others reach>:{dialled.port}",
            )

"""Checks a service's properties file: unknown names, invalid values, and settings that contradict each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from klamm.errors import ConfigError
from klamm.kafka_names.refused import advice
from klamm.kafka_names.without_effect import by_reason
from klamm.near_miss import near_miss
from klamm_cli.doctor.durability import FACTOR, MIN_ISR, UNCLEAN, check_durability
from klamm_cli.doctor.finding import Finding, ok, problem, warning
from klamm_cli.doctor.server_checks import is_loopback
from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.configs_without_effect import reason_of
from klamm_server.config.kafka_listeners import Role
from klamm_server.config.server_config import ServiceConfig, accepted_configs, known_configs, load

_SERVICES: tuple[tuple[str, type[ServiceConfig]], ...] = (
    ("broker", BrokerConfig),
    ("controller", ControllerConfig),
    ("coordinator", CoordinatorConfig),
)
_CHECK = "config"
_ADVICE = "change it, or the server does not start"
_IDLE_ADVICE = "remove them, or keep them for Kafka's servers"
_PLACES = frozenset({"listeners", "advertised.listeners", "log.dirs", "metadata.log.dir"})
"""Settings of ports and directories. If one of them is invalid, its default is not what the user meant, and is not
checked."""


class CheckedFile(NamedTuple):
    """The findings, and the configuration from the valid settings, or None if they make no configuration."""

    findings: list[Finding]
    config: ServiceConfig | None


def check_config(path: str, properties: Mapping[str, str]) -> CheckedFile:
    """Checks the settings of a properties file, as the service reads them that the file is for. A mistake does not hide
    other mistakes, because the valid settings are still checked."""
    name, service = _service(properties)
    wrong = dict(_wrong_values(service, properties))
    missing = _missing(service, properties)
    sound = {
        key: text
        for key, text in properties.items()
        if key in accepted_configs(service, properties) and key not in wrong
    }
    findings = list(_check_names(path, name, service, properties))
    findings += [problem(_CHECK, f"{path}: {text}", _ADVICE) for text in (*wrong.values(), *missing)]
    config = None
    try:
        if not missing:
            config = load(service, sound)
    except ConfigError as error:
        findings.append(problem(_CHECK, f"{path}: {error}", _ADVICE))
    findings += _check_idle(path, name, service, sound)
    if not findings:
        findings.append(ok(_CHECK, f"{path}: {len(sound)} settings of a {name}"))
    if service is BrokerConfig:
        findings += check_durability(_CHECK, path, _in_force(sound), None)
    if config is None or wrong.keys() & _PLACES:
        return CheckedFile(findings, None)
    return CheckedFile([*findings, *_check_listeners(path, config)], config)


def _service(properties: Mapping[str, str]) -> tuple[str, type[ServiceConfig]]:
    """Returns the service that the settings are for, and its name. If `process.roles` names a controller only, it is
    the controller. Otherwise it is the service that knows most of the names."""
    if properties.get("process.roles", "").strip() == Role.CONTROLLER.value:
        return Role.CONTROLLER.value, ControllerConfig
    return min(_SERVICES, key=lambda service: len(properties.keys() - known_configs(service[1], properties).keys()))


def _check_names(
    path: str, name: str, service: type[ServiceConfig], properties: Mapping[str, str]
) -> Iterator[Finding]:
    known = accepted_configs(service, properties)
    for key in sorted(properties.keys() - known.keys()):
        nearest = near_miss(key, known)
        told = advice(key, known) or ("remove it" if nearest is None else f"write {nearest}")
        yield problem(_CHECK, f"{path}: a {name} has no setting {key}, and does not start with it", told)


def _check_idle(path: str, name: str, service: type[ServiceConfig], sound: Mapping[str, str]) -> Iterator[Finding]:
    """Yields a warning for each reason why some of the settings have no effect."""
    accepted = accepted_configs(service, sound)
    idle = sorted(sound.keys() - known_configs(service, sound).keys())
    for reason, names in by_reason(idle, lambda key: reason_of(accepted[key])).items():
        text = f"{path}: no effect on a {name}, because {reason}: {', '.join(names)}"
        yield warning(_CHECK, text, _IDLE_ADVICE)


def _wrong_values(service: type[ServiceConfig], properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the name of each setting with an invalid value, with the error."""
    known = accepted_configs(service, properties)
    for key, text in sorted(properties.items()):
        try:
            if key in known:
                known[key].parse(text)
        except ConfigError as error:
            yield key, str(error)


def _missing(service: type[ServiceConfig], properties: Mapping[str, str]) -> list[str]:
    return [
        f"{name} is not set: {definition.documentation}"
        for name, definition in sorted(known_configs(service).items())
        if definition.is_required and name not in properties and name not in service.ALSO_KNOWN
    ]


def _in_force(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that decide how safe records are, with their defaults."""
    known = known_configs(BrokerConfig)
    return {name: properties.get(name, known[name].default_text()) for name in (MIN_ISR, FACTOR, UNCLEAN)}


def _check_listeners(path: str, config: ServiceConfig) -> Iterator[Finding]:
    listeners = config.resolved_listeners()
    for listener, dialled in zip(listeners.bound, listeners.advertised, strict=True):
        # If another listener of the same protocol is reachable, this one may be meant for clients on this machine.
        has_another = any(
            advertised.protocol is listener.protocol and not is_loopback(advertised.host)
            for advertised in listeners.advertised
        )
        if is_loopback(dialled.host) and not is_loopback(listener.host) and not has_another:
            yield warning(
                "listeners",
                f"{path}: it listens on {listener.host or 'every interface'}, and tells others to dial"
                f" {dialled.host}:{dialled.port}, their own loopback",
                f"set advertised.listeners={listener.name}://<an address others reach>:{dialled.port}",
            )

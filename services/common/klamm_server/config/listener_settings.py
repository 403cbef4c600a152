"""Settings of single listeners, by Kafka's names: `listener.name.external.max.connections` is `max.connections` of the
listener EXTERNAL. Where a listener has none of its own, it follows the setting without that prefix.

Some may differ by mechanism as well: `listener.name.external.scram-sha-256.connections.max.reauth.ms`, with the
mechanism in small letters, is that of clients that log in there by SCRAM-SHA-256.

Which settings there are depends on the names in `listeners`, so that one of a listener that does not exist is refused
like any unknown name. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from klamm.errors import ConfigError
from klamm.setting import Setting, UpdateMode
from klamm_server.config.sasl_settings import MECHANISMS
from klamm_server.net.listeners import name_in

PREFIX: Final = "listener.name."


def listener_prefix(listener: str) -> str:
    """Returns the prefix of the listener's settings."""
    return f"{PREFIX}{listener.lower()}."


def mechanism_prefix(listener: str, mechanism: str) -> str:
    """Returns the prefix of the settings for that mechanism at that listener."""
    return f"{listener_prefix(listener)}{mechanism.lower()}."


def listener_settings(known: Mapping[str, Setting], names: Iterable[str]) -> dict[str, Setting]:
    """Returns the settings of the listeners `names`, by full name. Only settings in `known` that may differ between
    listeners have one."""
    own = (
        _with_prefix(prefix, setting)
        for name in dict.fromkeys(names)
        for setting in known.values()
        for prefix in _prefixes(name, setting)
    )
    return {setting.name: setting for setting in own}


def listener_setting(known: Mapping[str, Setting], name: str) -> Setting | None:
    """Returns the setting with that full name, of any listener. Returns None if `name` is not a setting of a
    listener.
    """
    found = known.get(followed(name) or "")
    if found is None:
        return None
    listener = name.removeprefix(PREFIX).partition(".")[0]
    return next(
        (_with_prefix(prefix, found) for prefix in _prefixes(listener, found) if name == f"{prefix}{found.name}"), None
    )


def followed(name: str) -> str | None:
    """Returns the general setting that a listener's setting falls back to. Returns None if `name` is not a setting of a
    listener."""
    if not name.startswith(PREFIX):
        return None
    setting = name.removeprefix(PREFIX).partition(".")[2]
    mechanism, _, of_mechanism = setting.partition(".")
    return of_mechanism if mechanism.upper() in MECHANISMS else setting


def own_values(known: Mapping[str, Setting], properties: Mapping[str, str], listener: str) -> dict[str, Any]:
    """Returns the typed values that are set for that listener only, by field. Raises ConfigError for a wrong value."""
    own = [_with_prefix(listener_prefix(listener), setting) for setting in known.values() if setting.per_listener]
    return {setting.field: setting.parse(properties[setting.name]) for setting in own if setting.name in properties}


def listener_names(properties: Mapping[str, str], known: Mapping[str, Setting]) -> list[str]:
    """Returns the names of the listeners in `properties`, or else those of the default listeners."""
    text = properties.get("listeners", known["listeners"].default_text())
    return [name_in(item) for item in text.split(",") if item.strip()]


def check_listener(name: str, listeners: Iterable[str]) -> None:
    """Raises ConfigError if `name` is a setting of a listener that is not among `listeners`."""
    prefixes = [listener_prefix(listener) for listener in listeners]
    if name.startswith(PREFIX) and not name.startswith(tuple(prefixes)):
        expected = ", ".join(prefixes)
        raise ConfigError(f"{name}: the listener does not exist, expected a name that begins with one of {expected}")


def _prefixes(listener: str, setting: Setting) -> list[str]:
    """Returns all prefixes that the setting may have at that listener."""
    own = [listener_prefix(listener)] if setting.per_listener else []
    return [*own, *(mechanism_prefix(listener, mechanism) for mechanism in setting.mechanisms)]


def _with_prefix(prefix: str, setting: Setting) -> Setting:
    """Returns the setting with the prefix. It is read-only, so a change needs a restart."""
    return setting._replace(
        name=f"{prefix}{setting.name}",
        default=None,
        shown="",
        update_mode=UpdateMode.READ_ONLY,
        takes_effect="",
    )

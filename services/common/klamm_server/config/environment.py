"""Settings from environment variables: `KLAMM_MIN_INSYNC_REPLICAS=2` is `min.insync.replicas=2`, and
`KLAMM_LISTENER_NAME_EXTERNAL_MAX_CONNECTIONS=100` is `listener.name.external.max.connections=100`.

A variable that begins with `KLAMM_` and is no setting of the service is refused, like an unknown name in its file.
Otherwise, a misspelt setting would have no effect, and the operator would not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from klamm.errors import ConfigError
from klamm.setting import hint

PREFIX: Final = "KLAMM_"
OF_CLIENTS: Final = frozenset({"KLAMM_BOOTSTRAP", "KLAMM_COMMAND_CONFIG", "KLAMM_CORE"})
"""Variables of the command `klamm` and of the client library, which may share an environment with servers."""


def variable(name: str) -> str:
    """Returns the environment variable of a setting."""
    return PREFIX + name.upper().replace(".", "_").replace("-", "_")


def environment_properties(
    environment: Mapping[str, str], names: Iterable[str], more_names: Callable[[], Iterable[str]] = tuple
) -> dict[str, str]:
    """Returns the text of the settings `names` that `environment` sets, by name. Raises ConfigError for a variable that
    is not a setting.

    `more_names` returns further settings. It is called only if a variable is none of `names`."""
    names_by_variable = {variable(name): name for name in names}
    ours = {key for key in environment if key.startswith(PREFIX)} - OF_CLIENTS
    if not ours <= names_by_variable.keys():
        names_by_variable |= {variable(name): name for name in more_names()}
    properties: dict[str, str] = {}
    for key in sorted(environment):
        if key in names_by_variable:
            properties[names_by_variable[key]] = environment[key]
        elif key.startswith(PREFIX) and key not in OF_CLIENTS:
            name = key.removeprefix(PREFIX).lower().replace("_", ".")
            told = hint(name, names_by_variable.values(), variable)
            raise ConfigError(f"unknown configuration in the environment: {key}{told}")
    return properties


def listeners_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the setting `listeners` if `environment` sets it. It decides which settings of listeners exist."""
    key = variable("listeners")
    return {"listeners": environment[key]} if key in environment else {}


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns `environment` without settings, for a server that gets its settings in another way."""
    return {key: text for key, text in environment.items() if not key.startswith(PREFIX) or key in OF_CLIENTS}

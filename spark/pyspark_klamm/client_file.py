"""`clientConfigFile`: the settings of clients from a file that the driver and all workers have.

So a plan, and the data sent to workers, contain the name of the file and no password."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm.config import ClientConfig
from klamm.errors import ConfigError

CLIENT_FILE: Final = "clientConfigFile"
"""The option, and where the name of the file stands among the settings of clients."""
DOC: Final = (
    "A properties file with settings of the clients, such as sasl.*. The driver and every worker"
    " read it. Options take precedence over the file."
)
_NOT_OF_A_FILE: Final = frozenset({"transactional.id"})
"""Every task's producer has one of its own."""


def with_file(settings: Mapping[str, Any], config_class: type[ClientConfig]) -> dict[str, Any]:
    """The settings, and of the file that they name what clients of that class know. Raises ConfigError."""
    given = {name: value for name, value in settings.items() if name != CLIENT_FILE}
    if CLIENT_FILE not in settings:
        return given
    # It knows clients of all kinds, whose settings nobody else has to wait for.
    from klamm.client_file import read_client_file

    file = settings[CLIENT_FILE]
    try:
        found = read_client_file(file, config_class)
    except ConfigError as error:
        raise ConfigError(f"{CLIENT_FILE}={file}: {error}") from None
    return {**{name: text for name, text in found.items() if name not in _NOT_OF_A_FILE}, **given}

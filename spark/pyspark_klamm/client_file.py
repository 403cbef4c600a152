"""`clientConfigFile`: the settings of clients from a file that the driver and all workers have.

So a plan, and the data sent to workers, contain the name of the file and no password."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm.config import ClientConfig
from klamm.errors import ConfigError

CLIENT_FILE: Final = "clientConfigFile"
"""The name of the option. In the settings of clients, it is also the key of the file's name."""
DOC: Final = (
    "A properties file with settings of the clients, such as sasl.*. The driver and every worker"
    " read it. Options take precedence over the file."
)
_NOT_OF_A_FILE: Final = frozenset({"transactional.id"})
"""Settings that are not read from a file, because the producer of every task has its own value."""


def with_file(settings: Mapping[str, Any], config_class: type[ClientConfig]) -> dict[str, Any]:
    """Returns the settings, together with the settings of their file that `config_class` knows. Raises ConfigError."""
    given = {name: value for name, value in settings.items() if name != CLIENT_FILE}
    if CLIENT_FILE not in settings:
        return given
    # Imported only when a file is set, because the module loads the settings of all kinds of clients.
    from klamm.client_file import read_client_file

    file = settings[CLIENT_FILE]
    try:
        found = read_client_file(file, config_class)
    except ConfigError as error:
        raise ConfigError(f"{CLIENT_FILE}={file}: {error}") from None
    return {**{name: text for name, text in found.items() if name not in _NOT_OF_A_FILE}, **given}

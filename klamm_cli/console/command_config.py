"""`--command-config FILE` (or KLAMM_COMMAND_CONFIG): Kafka's option for the settings of a command's clients, such as
those of TLS and logins. Every command that talks to a cluster has it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm_cli.console.bootstrap_option import TALKS_TO_A_CLUSTER

if TYPE_CHECKING:
    from klamm.config import ClientConfig

_file: ContextVar[str | None] = ContextVar("command_config", default=None)


def offer_command_config(command: Any) -> None:
    """Adds the option to a typer command and its subcommands, if they talk to a cluster."""
    for subcommand in getattr(command, "commands", {}).values():
        offer_command_config(subcommand)
    if any(param.name == TALKS_TO_A_CLUSTER for param in command.params):
        command.params.append(_make_option())


def client_settings(bootstrap: str, config_class: type[ClientConfig] | None = None) -> dict[str, str]:
    """Returns the settings for a client of `config_class` (default: an Admin), by Kafka's names.

    The file may be for several kinds of clients, so settings that only another kind knows are left out. Raises
    ConfigError if the file cannot be read, or if no client knows a setting."""
    name = _file.get()
    if name is None:
        return {"bootstrap.servers": bootstrap}
    from klamm.client_file import read_client_file
    from klamm.config import ClientConfig
    from klamm.errors import ConfigError

    try:
        given = read_client_file(name, config_class or ClientConfig)
    except ConfigError as error:
        raise ConfigError(f"--command-config {name}: {error}") from None
    return {**given, "bootstrap.servers": bootstrap}


def _chosen(file: str | None) -> str | None:
    _file.set(file)
    return file


def _with_option(
    command_config: Annotated[
        str | None,
        typer.Option(
            "--command-config",
            envvar="KLAMM_COMMAND_CONFIG",
            metavar="FILE",
            callback=_chosen,
            expose_value=False,
            help="A properties file with client settings, such as security.protocol, ssl.* and sasl.*.",
        ),
    ] = None,
) -> None:
    """Declares the option, so that typer makes a parameter of it."""


def _make_option() -> Any:
    holder = typer.Typer(add_completion=False)
    holder.command()(_with_option)
    return typer.main.get_command(holder).params[0]

"""Text that needs no conversion is not converted: typer does it with pydantic, which takes a tenth of a second to load.

Numbers and paths that are given are typer's matter, and so is everything in versions of typer that do it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def convert_only_what_must_be(command: Any) -> None:
    """Changes the parameters of a command of typer's, and of its subcommands."""
    for each in getattr(command, "commands", {}).values():
        convert_only_what_must_be(each)
    for param in command.params:
        _replace(param)
    make_help_option = command.get_help_option

    def help_option(context: Any) -> Any:
        option = make_help_option(context)
        _replace(option)
        return option

    command.get_help_option = help_option


def _replace(param: Any) -> None:
    if hasattr(param, "get_runtime_param") and "get_runtime_param" not in vars(param):
        conversion = _Conversion(param.get_runtime_param)
        param.get_runtime_param = lambda: conversion


class _Conversion:
    """Stands in the place of typer's `RuntimeParam`."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Returns the same as typer's own conversion."""
        annotation = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if annotation is str and isinstance(value, str):
            return value
        if annotation == list[str] and isinstance(value, list | tuple):
            return list(value)
        if annotation in (int, float) and type(value) is annotation:  # a default; values from the command line are text
            return value
        return self._load().coerce(value, param=param, ctx=ctx)

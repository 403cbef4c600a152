"""Skips typer's conversion of text that needs none, because typer converts with pydantic, which takes 100 ms to load.

Typer still converts numbers and paths of the command line. A version of typer that converts in another way still
converts everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def convert_only_what_must_be(command: Any) -> None:
    """Replaces the conversion of all parameters of a typer command and its subcommands."""
    for subcommand in getattr(command, "commands", {}).values():
        convert_only_what_must_be(subcommand)
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
    """Replaces typer's `RuntimeParam`. It handles text and defaults itself, and loads typer's own conversion for other
    values."""

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

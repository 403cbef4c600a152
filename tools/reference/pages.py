"""All generated pages, by their path below `docs/reference`."""

from __future__ import annotations

from tools.reference import alerts, commands, contracts, errors, metrics, python_api


def pages() -> dict[str, str]:
    """Returns the texts of the pages.

    Call it once in a process: it finds the metrics of a package by importing the package."""
    return {
        "command-line.md": commands.page(),
        "errors.md": errors.page(),
        "metrics.md": metrics.page(),
        "alerts.md": alerts.page(),
        **{f"grpc/{name}": text for name, text in contracts.pages().items()},
        **{f"python/{name}": text for name, text in python_api.pages().items()},
    }

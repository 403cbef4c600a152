"""All generated pages, by their path below `docs/reference`."""

from __future__ import annotations

from tools.reference import alerts, commands, contracts, errors, metrics, python_api


def pages() -> dict[str, str]:
    """Their texts. Asked for once in a process: what is measured is known by which import adds it."""
    return {
        "command-line.md": commands.page(),
        "errors.md": errors.page(),
        "metrics.md": metrics.page(),
        "alerts.md": alerts.page(),
        **{f"grpc/{name}": text for name, text in contracts.pages().items()},
        **{f"python/{name}": text for name, text in python_api.pages().items()},
    }

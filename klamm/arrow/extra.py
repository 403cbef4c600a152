"""The check that the packages of the extra `arrow` are installed."""

from __future__ import annotations

import importlib


def require_packages(call: str) -> None:
    """Raises ImportError, which says how to install them, if pyarrow or numpy cannot be imported. `call` is the name of
    the function that the user has called."""
    for package in ("pyarrow", "numpy"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ImportError(f"{call} needs pyarrow and numpy ({error}): pip install 'klamm[arrow]'") from error

"""Keys and certificates that change while a process runs: read again when their files do, used only if they fit.

If new files are not valid, the material in use stays. Reading blocks; time is an argument."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime

from klamm.errors import ConfigError
from klamm.security.material import TlsMaterial, load_material
from klamm.security.tls_settings import TlsSettings

Check = Callable[[TlsMaterial | None, TlsMaterial], None]
"""Checks new material. The arguments are the material in use, or None, and the new one. Raises ConfigError to refuse
it."""


def accept_any(_: TlsMaterial | None, __: TlsMaterial) -> None:
    """Accepts all material that `load_material` accepts."""


class WatchedMaterial:
    """The current content of the key and trust stores that settings name.

    The constructor reads them. It raises ConfigError if `load_material` or `check` does."""

    def __init__(self, settings: TlsSettings, *, now: datetime, check: Check = accept_any) -> None:
        self._settings = settings
        self._check = check
        self._stamps = self._look()
        self._refusal = ""
        self.version = 0
        """A number that grows with every change."""
        self.material = load_material(settings, now=now)
        check(None, self.material)

    def refresh(self, now: datetime) -> bool:
        """Reads the files again if they have changed. Returns whether other material is in use now.

        Raises ConfigError if the new files cannot be used, once for each reason."""
        stamps = self._look()
        if stamps == self._stamps and not self._refusal:
            return False
        try:
            material = load_material(self._settings, now=now)
            if material != self.material:
                self._check(self.material, material)
        except ConfigError as error:
            is_known, self._refusal = str(error) == self._refusal, str(error)
            if is_known:
                return False
            raise
        self._stamps, self._refusal = stamps, ""
        if material == self.material:
            return False
        self.material = material
        self.version += 1
        return True

    def _look(self) -> list[tuple[int, int, int] | None]:
        """Returns stamps of the files that change with their content. The files are not read."""
        names = (self._settings.ssl_keystore_location, self._settings.ssl_truststore_location)
        return [_stamp(name) for name in names if name is not None]


def _stamp(name: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

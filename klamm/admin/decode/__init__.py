"""Decodes the servers' answers into the Admin's values.

Each module belongs to an area of `klamm.admin.types`. It is loaded when one of its functions is first used.
"""

from __future__ import annotations

from klamm.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(globals())

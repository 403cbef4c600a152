"""Administration: topics, configs, groups and their offsets, transactions, records, log directories.

The public names below are loaded on first use: a command needs few of the types.
"""

from __future__ import annotations

from klamm.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(globals())

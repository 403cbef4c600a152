"""Joins RPC families into the one object per service that an RpcServer takes."""

from __future__ import annotations

from types import SimpleNamespace


def servicer(*families: object) -> SimpleNamespace:
    """An object with the public methods of all `families`. No two may have one of the same name."""
    methods: dict[str, object] = {}
    for family in families:
        for name in vars(type(family)):
            if not name.startswith("_"):
                assert name not in methods, name
                methods[name] = getattr(family, name)
    return SimpleNamespace(**methods)

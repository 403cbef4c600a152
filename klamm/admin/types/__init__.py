"""The arguments and results of an Admin: plain values with Kafka's names.

Enum numbers are Kafka's (`ConfigResource.Type`, `AlterConfigOp.OpType`, `ConfigEntry.ConfigSource`). Each module is an
area, and is loaded when one of its names is used: a command needs few of them."""

from __future__ import annotations

from klamm.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(globals())

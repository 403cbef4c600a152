"""Refuses libraries that replace Python's threads by green threads, which take turns on one real thread.

The clients' event loop needs a real thread. A green thread would run the loop and never let the caller go on."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from klamm.errors import IllegalStateError


class _Library(NamedTuple):
    name: str
    module: str
    """The module that replaces Python's."""
    asks: str
    """The module's function that tells whether a module was replaced."""
    patch: str
    """The call with which programs replace Python's modules."""
    threads: str
    """The name that `asks` has for threads."""


_LIBRARIES: Final = (
    _Library("gevent", "gevent.monkey", "is_module_patched", "monkey.patch_all", "threading"),
    _Library("eventlet", "eventlet.patcher", "is_monkey_patched", "eventlet.monkey_patch", "thread"),
)


def refuse_green_threads() -> None:
    """Raises IllegalStateError if gevent or eventlet has replaced Python's threads, sockets or `select`."""
    for library in _LIBRARIES:
        if (module := sys.modules.get(library.module)) is None:
            continue
        is_replaced = getattr(module, library.asks)
        names = {"thread": library.threads, "socket": "socket", "select": "select"}
        if replaced := [name for name, asked in names.items() if is_replaced(asked)]:
            options = ", ".join(f"{name}=False" for name in names)
            raise IllegalStateError(
                f"{library.name} has replaced Python's {' and '.join(replaced)}, so a client of Klamm would wait for"
                f" ever; expected a process without {library.patch}(), or with {library.patch}({options})"
            )

"""Tests that the synchronous Admin is the one that the tool writes, and passes each call on to the asynchronous one."""

from __future__ import annotations

import inspect

from klamm import Admin, AsyncAdmin
from tools.sync_admin import PATH, written


def test_the_module_is_what_the_tool_writes() -> None:
    assert PATH.read_text(encoding="utf-8") == written(), "run python -m tools.sync_admin"


def test_each_method_has_the_parameters_of_the_asynchronous_one_and_passes_them_on() -> None:
    methods = dict(inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction))
    public = {name for name in methods if not name.startswith("_")}
    assert len(public) > 40
    calls: list[object] = []
    admin = Admin.__new__(Admin)
    admin._async = AsyncAdmin.__new__(AsyncAdmin)
    admin._run = lambda method, *positional, **named: calls.append((method.__name__, positional, named))
    for name in sorted(public):
        method = getattr(Admin, name)
        assert inspect.signature(method) == inspect.signature(methods[name])
        parameters = list(inspect.signature(method).parameters.values())[1:]
        positional = [f"<{it.name}>" for it in parameters if it.kind is it.POSITIONAL_OR_KEYWORD]
        named = {it.name: f"<{it.name}>" for it in parameters if it.kind is it.KEYWORD_ONLY}
        getattr(admin, name)(*positional, **named)
        assert calls.pop() == (name, tuple(positional), named)

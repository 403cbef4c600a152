"""Tests that the sources of the synchronous clients have the docstrings that editors show."""

from __future__ import annotations

import ast
import inspect

import pytest

from tools.facade_docstrings import OWN, PAIRS, ROOT, modules, public_methods, with_docstrings


@pytest.mark.parametrize("path", modules())
def test_the_modules_have_the_docstrings_that_the_tool_writes(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == modules()[path], "run python -m tools.facade_docstrings"


@pytest.mark.parametrize("client", PAIRS)
def test_each_public_method_of_a_synchronous_client_has_the_docstring_of_the_asynchronous_one(client: type) -> None:
    module = inspect.getmodule(client)
    assert module is not None
    methods = list(public_methods(inspect.getsource(module), client.__name__))
    assert len(methods) > 10
    for method in methods:
        name = method.name
        shown = ast.get_docstring(method)
        assert shown, f"{client.__name__}.{name}"
        if f"{client.__name__}.{name}" not in OWN:
            source = inspect.getdoc(getattr(PAIRS[client], name))
            assert source is not None
            assert shown == source.replace("async with", "with").replace("async for", "for").replace("await ", "")


@pytest.mark.parametrize("client", PAIRS)
def test_a_method_that_only_the_asynchronous_client_has_is_known(client: type) -> None:
    here = {name for name in dir(client) if not name.startswith("_")}
    there = {
        name for name, getmember in inspect.getmembers(PAIRS[client]) if inspect.isroutine(getmember) and name[0] != "_"
    }
    only_async = {"send_and_wait", "send_now", "with_user_code"}
    """A synchronous send returns a future that waits, and may be called anywhere. The last one builds the synchronous
    consumer."""
    assert there - here <= only_async


class Source:
    """A client that the test documents another one by."""

    async def first(self) -> None:
        """Waits, as in `await client.first()`.

        Use it in `async with client`, or `async for`."""

    async def second(self) -> None:
        """Ends."""


def test_docstrings_are_added_and_replaced_and_lose_the_words_of_asyncio() -> None:
    written = (
        "class Client:\n"
        "    def first(self) -> None:\n"
        "        return None\n"
        "\n"
        "    def second(self) -> None:\n"
        '        """Begins.\n'
        "\n"
        '        Another line."""\n'
        "\n"
        "    def _third(self) -> None: ...\n"
    )
    expected = (
        "class Client:\n"
        "    def first(self) -> None:\n"
        '        """Waits, as in `client.first()`.\n'
        "\n"
        '        Use it in `with client`, or `for`."""\n'
        "        return None\n"
        "\n"
        "    def second(self) -> None:\n"
        '        """Ends."""\n'
        "\n"
        "    def _third(self) -> None: ...\n"
    )
    assert with_docstrings(written, "Client", Source) == expected
    assert with_docstrings(expected, "Client", Source) == expected

"""Writes the docstrings of the asynchronous clients' methods into the synchronous clients, or checks them:
`python -m tools.facade_docstrings [--check]`.

A synchronous client has the methods of an asynchronous one. Editors read sources and run nothing, so each docstring
must stand in both. It is written by hand in the asynchronous client alone. `tools/sync_admin.py` writes all of Admin.
"""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from klamm import AsyncConsumer, AsyncProducer, Consumer, Producer

ROOT: Final = Path(__file__).resolve().parents[1]
PAIRS: Final[Mapping[type, type]] = {Producer: AsyncProducer, Consumer: AsyncConsumer}
OWN: Final = {"Producer.send", "Producer.send_many", "Producer.send_packed", "Producer.flush", "Producer.close"}
"""The methods whose docstring is written by hand in the synchronous client too, because they differ for threads."""
_ASYNC_WORDS: Final = re.compile(r"\b(?:async (?=with|for)|await )")
_INDENT: Final = 8 * " "

Method = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> dict[str, str]:
    """Returns the text of each synchronous client's module, by its path in the repository."""
    made = {}
    for sync, source in PAIRS.items():
        text = _path(sync).read_text(encoding="utf-8")
        made[str(_path(sync).relative_to(ROOT))] = with_docstrings(text, sync.__name__, source)
    return made


def with_docstrings(text: str, name: str, source: type) -> str:
    """Returns the module `text`, in which the public methods of the class `name` have the docstrings of the methods of
    `source`."""
    lines = text.splitlines()
    for method in reversed(list(public_methods(text, name))):
        if f"{name}.{method.name}" not in OWN:
            first = method.body[0]
            end = first.end_lineno if ast.get_docstring(method) is not None else first.lineno - 1
            lines[first.lineno - 1 : end] = (_INDENT + _docstring(source, method.name)).split("\n")
    return "\n".join(lines) + "\n"


def public_methods(text: str, name: str) -> Iterator[Method]:
    """Yields the public methods of the class `name` in the module `text`, in their order."""
    for owner in ast.parse(text).body:
        if isinstance(owner, ast.ClassDef) and owner.name == name:
            for each in owner.body:
                if isinstance(each, Method) and not each.name.startswith("_"):
                    yield each


def _docstring(source: type, name: str) -> str:
    """Returns the docstring of a method of `source` as its source has it, without `async` and `await`."""
    owner = next(each for each in source.__mro__ if name in vars(each))
    text = _path(owner).read_text(encoding="utf-8")
    method = next(public_method for public_method in public_methods(text, owner.__name__) if public_method.name == name)
    assert ast.get_docstring(method) is not None, f"{owner.__name__}.{name} has no docstring"
    written = ast.get_source_segment(text, method.body[0])
    assert written is not None, method.body[0]
    return without_async(written)


def without_async(docstring: str) -> str:
    """Returns the docstring without the words `async` and `await` in its examples."""
    return _ASYNC_WORDS.sub("", docstring)


@functools.cache
def _path(owner: type) -> Path:
    return Path(inspect.getfile(owner)).resolve()


def main() -> int:
    """Returns the exit status: 1 if `--check` finds a module that is out of date."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.facade_docstrings", description="Writes the docstrings of the synchronous clients."
    )
    parser.add_argument("--check", action="store_true", help="Write nothing; name the modules that are out of date.")
    is_check = parser.parse_args().check
    stale = {path: text for path, text in modules().items() if (ROOT / path).read_text(encoding="utf-8") != text}
    for path, text in stale.items():
        if is_check:
            print(f"{path} is out of date: write it again by `python -m tools.facade_docstrings`", file=sys.stderr)
        else:
            (ROOT / path).write_text(text, encoding="utf-8")
    return int(is_check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

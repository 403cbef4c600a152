"""Writes the synchronous Admin from the asynchronous one, or checks it: `python -m tools.sync_admin [--check]`.

Each method of AsyncAdmin gets a method that waits for its result. Editors read sources and run nothing, so the module
stands in the repository.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klamm.admin.async_admin import AsyncAdmin
from tools.facade_docstrings import without_async

ROOT: Final = Path(__file__).resolve().parents[1]
PATH: Final = ROOT / "klamm" / "admin" / "sync_admin.py"
_HEAD: Final = '''\
"""The Admin for threads: an AsyncAdmin on the shared loop thread. `python -m tools.sync_admin` writes this module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from klamm.admin.async_admin import AsyncAdmin
from klamm.threads.loop_thread import LoopThread
{constants}
if TYPE_CHECKING:
    from types import TracebackType

    from klamm.setting_types import ClientSettings
{imports}

class Admin:
    """The synchronous Admin. Its methods are those of AsyncAdmin, but wait for the result. Any thread may call them."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ClientSettings]) -> None:
        self._run = LoopThread.shared().run
        self._async = self._run(_create, config, settings)

{methods}
    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncAdmin", "Admin", 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


async def _create(config: Mapping[str, Any] | None, settings: ClientSettings) -> AsyncAdmin:
    return AsyncAdmin(config, **settings)
'''

_IN_HEAD: Final = {"Any", "Mapping", "Self", "Unpack"}


def written() -> str:
    """Returns the text of the module."""
    methods, defaults, annotations = [], set[str](), set[str]()
    modules: dict[str, str] = {}
    for owner, text, method in _methods():
        methods.append(_forwarding(text, method))
        defaults |= _names(*method.args.defaults, *filter(None, method.args.kw_defaults))
        arguments = [*method.args.args, *method.args.kwonlyargs]
        annotations |= _names(method.returns, *(argument.annotation for argument in arguments))
        modules |= {**dict.fromkeys(_constants(text), owner.__module__), **_imported(text)}
    constants = _imports(defaults, modules)
    imports = _imports(annotations - defaults - _IN_HEAD, modules)
    text = _HEAD.format(constants=constants, imports=_indented(imports), methods="\n".join(methods))
    return _formatted(text)


def _methods() -> Iterator[tuple[type, str, ast.AsyncFunctionDef]]:
    """Yields the public asynchronous methods, each with its class and the text of its module."""
    for owner in (AsyncAdmin, *AsyncAdmin.__bases__):
        text = Path(inspect.getfile(owner)).read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and node.name == owner.__name__:
                for member in node.body:
                    if isinstance(member, ast.AsyncFunctionDef) and not member.name.startswith("_"):
                        yield owner, text, member


def _forwarding(text: str, method: ast.AsyncFunctionDef) -> str:
    """Returns the text of the synchronous method."""
    segment, docstring = ast.get_source_segment(text, method), ast.get_source_segment(text, method.body[0])
    assert segment, method.name
    assert docstring, method.name
    signature = segment[: segment.index(docstring)].rstrip().removeprefix("async ")
    positional = [argument.arg for argument in method.args.args if argument.arg != "self"]
    named = [f"{argument.arg}={argument.arg}" for argument in method.args.kwonlyargs]
    call = f"self._run({', '.join([f'self._async.{method.name}', *positional, *named])})"
    returns = isinstance(method.returns, ast.Constant) and method.returns.value is None
    return f"    {signature}\n        {without_async(docstring)}\n        {call if returns else f'return {call}'}\n"


def _names(*nodes: ast.AST | None) -> set[str]:
    return {name.id for node in nodes if node is not None for name in ast.walk(node) if isinstance(name, ast.Name)}


def _constants(text: str) -> set[str]:
    """Returns the names of the module's constants."""
    assigned = (node.target for node in ast.parse(text).body if isinstance(node, ast.AnnAssign))
    plain = (target for node in ast.parse(text).body if isinstance(node, ast.Assign) for target in node.targets)
    return {target.id for target in (*assigned, *plain) if isinstance(target, ast.Name)}


def _imported(text: str) -> dict[str, str]:
    """Returns the module of each name that the text imports from one."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


def _imports(names: set[str], modules: dict[str, str]) -> str:
    return "".join(f"from {modules[name]} import {name}\n" for name in sorted(names) if name in modules)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _formatted(text: str) -> str:
    """Returns the text in the house format, with its imports joined and sorted."""
    for command in (["check", "--fix", "--select", "I,F401", "--quiet"], ["format", "--quiet"]):
        ran = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(PATH), "-"]
        text = subprocess.run(ran, input=text, text=True, capture_output=True, check=True, cwd=ROOT).stdout
    return text


def main() -> int:
    """Returns the exit status: 1 if `--check` finds that the module is out of date."""
    parser = argparse.ArgumentParser(prog="python -m tools.sync_admin", description="Writes the synchronous Admin.")
    parser.add_argument("--check", action="store_true", help="Write nothing; say whether the module is out of date.")
    text = written()
    if not parser.parse_args().check:
        PATH.write_text(text, encoding="utf-8")
        return 0
    is_stale = PATH.read_text(encoding="utf-8") != text
    if is_stale:
        print(f"{PATH.name} is out of date: write it again by `python -m tools.sync_admin`", file=sys.stderr)
    return int(is_stale)


if __name__ == "__main__":
    sys.exit(main())

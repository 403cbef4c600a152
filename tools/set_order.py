"""Finds sets of objects in the product. Python orders them by address, so the order differs from process to process.

Run: python tools/set_order.py

`klamm.ordered_set.OrderedSet` takes their place. The tool reads annotations, such as `self._tasks: set[asyncio.Task]`:
each element's type must be one of `VALUES`, which are hashed by what they hold.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = ("klamm", "klamm_cli", "services", "spark")
GENERATED: Final = ("build",)

VALUES: Final = frozenset(
    {"Hashable", "PartitionKey", "PatternType", "ReplicaKey", "TopicIdPartition", "TopicPartition", "UUID"}
    | {"bytes", "int", "str", "tuple", "uuid"}
)


def findings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each annotation `set[X]` whose X names another type than those of `VALUES`."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "set"):
            continue
        if any(name not in VALUES for name in _names(node.slice)):
            yield node.lineno, ast.unparse(node)


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr


def main() -> int:
    """Prints each finding as file:line. Returns 1 if there is one."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}: use OrderedSet, so that the order is the same in each process"
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not set(GENERATED) & set(path.relative_to(ROOT).parts)
        for line, text in findings(ast.parse(path.read_text()))
    ]
    print("\n".join(found) or "no set of objects found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

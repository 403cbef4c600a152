"""Finds the differences of two answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.clients.judge.normal import Tree

IDENTITIES = (
    ("resource_type", "resource_name"),
    ("name",),
    ("name", "topic_id"),
    ("topic",),
    ("topic_id",),
    ("topic_name",),
    ("partition_index",),
    ("partition_id",),
    ("partition",),
    ("index",),
    ("group_id",),
    ("transactional_id",),
    ("key",),
    ("user",),
    ("mechanism",),
)
"""The fields that identify the items of a list. The first group that all items have is used."""


class Found(NamedTuple):
    """A difference in one field. `""` is the answer as a whole."""

    field: str
    ours: str
    kafka: str


def differences(ours: Tree, kafka: Tree, field: str = "") -> Iterator[Found]:
    """Yields the differences of all leaves. The order of items does not count if the items can be identified."""
    if isinstance(ours, dict) and isinstance(kafka, dict):
        for name in dict.fromkeys((*ours, *kafka)):
            inner = f"{field}.{name}" if field else name
            yield from differences(ours.get(name, "no such field"), kafka.get(name, "no such field"), inner)
    elif isinstance(ours, list) and isinstance(kafka, list):
        yield from _of_lists(ours, kafka, field)
    elif ours != kafka:
        yield Found(field, shown(ours), shown(kafka))


def _of_lists(ours: list[Tree], kafka: list[Tree], field: str) -> Iterator[Found]:
    names = _identity(ours, kafka)
    ours_by, kafka_by = _by_identity(ours, names), _by_identity(kafka, names)
    for key in dict.fromkeys((*ours_by, *kafka_by)):
        if key in ours_by and key in kafka_by:
            yield from differences(ours_by[key], kafka_by[key], field)
        else:
            yield Found(field, _item(ours_by.get(key)), _item(kafka_by.get(key)))


def _identity(ours: list[Tree], kafka: list[Tree]) -> tuple[str, ...] | None:
    """Returns the fields that identify the items, at least nearly, or None if the items have no such fields."""
    items = [*ours, *kafka]
    shared = [
        names for names in IDENTITIES if all(isinstance(item, dict) and item.keys() >= set(names) for item in items)
    ]
    unique = (
        names for names in shared if all(len({_key(names, one) for one in side}) == len(side) for side in (ours, kafka))
    )
    return next(unique, next(iter(shared), None))


def _by_identity(items: list[Tree], names: tuple[str, ...] | None) -> Mapping[tuple[str, int], Tree]:
    """Returns the items by identity, with a number that distinguishes items of the same identity. Without names, the
    place of an item identifies it, and plain values are sorted first."""
    if names is None and items and not isinstance(items[0], dict | list):
        items = sorted(items, key=str)
    found: dict[tuple[str, int], Tree] = {}
    times: Counter[str] = Counter()
    for item in items:
        key = "" if names is None else _key(names, item)
        found[key, times[key]] = item
        times[key] += 1
    return found


def _key(names: tuple[str, ...], item: Tree) -> str:
    return json.dumps([item[name] for name in names])


def _item(item: Tree | None) -> str:
    """Shows the item by the fields that identify it, and its errors."""
    if not isinstance(item, dict):
        return "nothing" if item is None else shown(item)
    names = next((names for names in IDENTITIES if item.keys() >= set(names)), tuple(item)[:1])
    return " ".join([*(shown(item[name]) for name in names), *_errors(item)])


def _errors(tree: Tree) -> list[str]:
    """All codes in it but `none`, each once."""
    if isinstance(tree, list):
        return list(dict.fromkeys(code for one in tree for code in _errors(one)))
    if not isinstance(tree, dict):
        return []
    codes = [value for name, value in tree.items() if name == "error_code" and value != "none"]
    return list(dict.fromkeys((*codes, *(code for value in tree.values() for code in _errors(value)))))


def shown(value: Tree) -> str:
    """Shows a value as the table does. Only the errors of an answer are shown."""
    if isinstance(value, dict):
        return " ".join(["answers", *_errors(value)])
    if value == "":
        return '""'
    return value if isinstance(value, str) else json.dumps(value)

"""The manifests of deploy/ for Kubernetes: built as `kubectl kustomize` does, and read as a kubelet does.

`built` knows what the files in deploy/ use: resources, JSON 6902 patches with a target, and strategic merge patches
that delete an object. It does not set image tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"


def built(directory: Path) -> list[dict[str, Any]]:
    """Returns the objects that the folder's kustomization.yaml describes."""
    kustomization = yaml.safe_load((directory / "kustomization.yaml").read_text())
    objects: list[dict[str, Any]] = []
    for name in kustomization["resources"]:
        path = (directory / name).resolve()
        objects += built(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    for patch in kustomization.get("patches", ()):
        text = (directory / patch["path"]).read_text() if "path" in patch else patch["patch"]
        objects = _patched(objects, patch.get("target"), yaml.safe_load(text))
    for one in objects:
        one["metadata"]["namespace"] = kustomization["namespace"]
    return objects


def _patched(objects: list[dict[str, Any]], target: dict[str, str] | None, patch: Any) -> list[dict[str, Any]]:
    """Returns the objects after a patch. Fails if the patch fits none of them."""
    if target is None:
        assert patch["$patch"] == "delete", patch
        kept = [one for one in objects if _identity(one) != _identity(patch)]
        assert len(kept) == len(objects) - 1, patch
        return kept
    fitting = [one for one in objects if one["kind"] == target["kind"] and _has_name(one, target)]
    assert fitting, target
    for one in fitting:
        for operation in patch:
            _apply(one, operation)
    return objects


def _identity(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["apiVersion"], one["kind"], one["metadata"]["name"]


def _has_name(one: dict[str, Any], target: dict[str, str]) -> bool:
    return target.get("name", one["metadata"]["name"]) == one["metadata"]["name"]


def _apply(document: Any, operation: dict[str, Any]) -> None:
    """Applies one operation (RFC 6902)."""
    *parents, last = (_key(part) for part in operation["path"].split("/")[1:])
    for key in parents:
        document = document[key]
    match operation["op"]:
        case "test":
            assert document[last] == operation["value"], operation
        case "remove":
            del document[last]
        case "replace":
            # RFC 6902: the value must exist.
            assert document[last] is not None, operation
            document[last] = operation["value"]
        case "add" if isinstance(document, dict):
            document[last] = operation["value"]
        case other:
            raise AssertionError(f"unknown operation {other}: {operation}")


def _key(part: str) -> str | int:
    return int(part) if part.isdecimal() else part.replace("~1", "/").replace("~0", "~")


def of_kind(kind: str, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the objects of one kind."""
    return [one for one in objects if one["kind"] == kind]


def environment_of(container: Mapping[str, Any], pod: str, ordinal: int) -> dict[str, str]:
    """Returns the variables that Kubernetes sets in a container of a StatefulSet's pod, in the namespace default."""
    fields = {
        "metadata.name": pod,
        "metadata.namespace": "default",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
    }
    environment: dict[str, str] = {}
    for variable in container["env"]:
        text = variable.get("value") or fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        environment[variable["name"]] = _expanded(text, environment)
    return environment


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """Returns the text with each `$(NAME)` replaced, as Kubernetes replaces the variables defined before."""
    return re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], text)

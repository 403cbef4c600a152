"""The file of a reassignment plan, in the format of Kafka's tool."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm.model import TopicPartition
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import fail

Plan = Mapping[TopicPartition, tuple[int, ...]]
"""The replicas of each partition, the preferred leader first."""

_VERSION: Final = 1


def plan_document(plan: Plan) -> dict[str, Any]:
    """Returns a plan in the format of Kafka's tool."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in sorted(plan.items())
    ]
    return {"version": _VERSION, "partitions": partitions}


def read_plan(file: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the plan in `file`, or in standard input if that is "-". Ends the command if there is no plan."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        document: Any = json.loads(text)
        if document["version"] != _VERSION:
            fail(f"{file}: version {document['version']!r}, expected {_VERSION}", ExitStatus.USAGE)
        plan = {
            TopicPartition(str(entry["topic"]), int(entry["partition"])): tuple(map(int, entry["replicas"]))
            for entry in document["partitions"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"{file}: expected a plan as `klamm reassign generate` prints it; {_problem(error)}", ExitStatus.USAGE)
    if len(plan) != len(document["partitions"]):
        fail(f"{file}: a partition is named twice", ExitStatus.USAGE)
    return plan


def _problem(error: Exception) -> str:
    """Describes the error in a plan."""
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)

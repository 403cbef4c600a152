"""The one line that `klamm up` promises on stdout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def say_ready(brokers: Sequence[str], kafka: Sequence[str], data_dir: Path) -> None:
    """Where clients of either kind find the brokers, each as host:port."""
    line = f"klamm is ready at {','.join(brokers)}, Kafka clients at {','.join(kafka)}, data in {data_dir}"
    print(line, flush=True)  # noqa: T201

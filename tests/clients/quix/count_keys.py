"""Counts the records of each key with Quix Streams. It runs in the environment of `quix_environment.py`.

Arguments: bootstrap, name, source, target, state directory. The name is the consumer group and the transactional id."""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application, State


def count(_: Any, state: State) -> int:
    """Returns how many records of this key were counted, this one too."""
    total: int = state.get("count", 0) + 1
    state.set("count", total)
    return total


def main(bootstrap: str, name: str, source: str, target: str, state_dir: str) -> None:
    app = Application(
        bootstrap,
        consumer_group=name,
        auto_offset_reset="earliest",
        state_dir=state_dir,
        processing_guarantee="exactly-once",
        # Small transactions, so that a run that is killed has committed some and not others.
        commit_every=100,
        # A fixed id, so that the next run ends the transaction that a killed run left open.
        producer_extra_config={"transactional.id": name},
        consumer_extra_config={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
    )
    words = app.topic(source, key_deserializer="str", value_deserializer="str")
    counts = app.topic(target, key_serializer="str", value_serializer="json")
    app.dataframe(words).apply(count, stateful=True).to_topic(counts)
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

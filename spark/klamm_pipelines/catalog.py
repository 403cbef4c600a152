"""The catalog of all pipelines, by name."""

from __future__ import annotations

from klamm_pipelines import archive, compact, dedup_and_dead_letter, enrich, flight_delays, mirror, replay
from klamm_pipelines.job import Pipeline

_MODULES = (flight_delays, enrich, archive, compact, replay, dedup_and_dead_letter, mirror)

PIPELINES: dict[str, Pipeline] = {module.PIPELINE.name: module.PIPELINE for module in _MODULES}

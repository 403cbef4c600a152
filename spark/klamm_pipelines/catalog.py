"""The pipelines there are."""

from __future__ import annotations

from klamm_pipelines import flight_delays
from klamm_pipelines.job import Pipeline

PIPELINES: dict[str, Pipeline] = {each.name: each for each in (flight_delays.PIPELINE,)}

"""Comes before every test: `klamm` before gRPC, which reads what `klamm` sets when it is imported."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

import klamm as klamm

# How long an example takes says more about the machine than about the code.
settings.register_profile("klamm", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("klamm")

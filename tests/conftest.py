"""Comes before every test: `klamm` before gRPC, which reads what `klamm` sets when it is imported."""

from __future__ import annotations

import klamm as klamm

"""Tests how many connections the limit of open files allows."""

from __future__ import annotations

import resource

import pytest

from klamm.setting import INT_MAX
from klamm_server.runtime import open_files


@pytest.mark.parametrize(
    ("soft", "kafka", "grpc"), [(4_096, 2_048, 1_024), (resource.RLIM_INFINITY, INT_MAX // 2, INT_MAX // 4)]
)
def test_connections_leave_a_quarter_of_the_open_files_for_other_uses(
    monkeypatch: pytest.MonkeyPatch, soft: int, kafka: int, grpc: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    assert (open_files.kafka_connections_max(), open_files.grpc_connections_max()) == (kafka, grpc)

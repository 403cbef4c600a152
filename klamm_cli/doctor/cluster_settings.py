"""Reads the settings that the checks need from each live broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.admin.types import ClusterDescription, ConfigResource, ConfigResourceType
from klamm.errors import KlammError
from klamm_cli.doctor.cluster_checks import COMPARED
from klamm_cli.doctor.durability import SETTINGS
from klamm_cli.doctor.finding import Finding, warning

if TYPE_CHECKING:
    from klamm import Admin


def broker_settings(
    admin: Admin, cluster: ClusterDescription, timeout_ms: int
) -> tuple[dict[int, dict[str, str]], list[Finding]]:
    """Returns the settings by broker id and name, as text, and a finding if they could not be read."""
    resources = {
        ConfigResource(ConfigResourceType.BROKER, str(broker.node_id)): broker.node_id
        for broker in cluster.brokers
        if not broker.fenced
    }
    try:
        described = admin.describe_configs(resources, names=[*SETTINGS, *COMPARED], timeout_ms=timeout_ms)
    except KlammError as error:
        return {}, [warning("settings", f"not known: {error}", "see whether a controller is active")]
    return {
        resources[resource]: {name: entry.value for name, entry in entries.items()}
        for resource, entries in described.items()
    }, []

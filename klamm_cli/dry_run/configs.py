"""Configs of the cluster that decide whether a change is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.errors import BrokerError

if TYPE_CHECKING:
    from klamm import Admin


def broker_config(admin: Admin, name: str) -> str | None:
    """Returns a config's value on a live broker. Returns None if no broker lives, or if the user may not read it."""
    from klamm.admin import ConfigResource, ConfigResourceType

    live = [broker.node_id for broker in admin.describe_cluster().brokers if not broker.fenced]
    if not live:
        return None
    resource = ConfigResource(ConfigResourceType.BROKER, str(live[0]))
    try:
        entries = admin.describe_configs([resource], names=[name])[resource]
    except BrokerError:
        return None
    return entries[name].value if name in entries else None

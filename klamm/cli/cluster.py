"""`klamm cluster`: its id, its servers and their disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from klamm.cli.connect import connected
from klamm.cli.output import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, Bootstrap, Json, Timeout, print_json, print_rows, say

if TYPE_CHECKING:
    from klamm.admin import ClusterDescription, ServerDescription

_MIB = 1024 * 1024


def cluster(
    log_dirs: Annotated[bool, typer.Option("--log-dirs", help="Show the brokers' log directories instead.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Shows the cluster's servers, or their log directories."""
    with connected(bootstrap, timeout) as admin:
        if log_dirs:
            described = admin.describe_log_dirs()
        else:
            description = admin.describe_cluster()
    if log_dirs:
        disks = [
            (
                broker_id,
                each.path,
                "online" if each.online else "offline",
                len(each.replicas),
                sum(replica.size_bytes for replica in each.replicas) // _MIB,
                each.usable_bytes // _MIB,
            )
            for broker_id, directories in sorted(described.items())
            for each in directories
        ]
        print_rows(("broker", "path", "state", "replicas", "used_mib", "free_mib"), disks, as_json=as_json)
        return
    kinds = {
        "controller": description.controllers,
        "broker": description.brokers,
        "coordinator": description.coordinators,
    }
    rows = [
        (kind, each.node_id, f"{each.host}:{each.port}", each.rack or None, _state(kind, each, description))
        for kind, servers in kinds.items()
        for each in servers
    ]
    columns = ("kind", "id", "address", "rack", "state")
    if as_json:
        print_json(
            {
                "cluster_id": description.cluster_id,
                "metadata_end_index": description.metadata_end_index,
                "servers": [dict(zip(columns, row, strict=True)) for row in rows],
            }
        )
        return
    say(f"cluster {description.cluster_id}")
    print_rows(columns, rows, as_json=False)


def _state(kind: str, server: ServerDescription, description: ClusterDescription) -> str:
    if kind == "controller":
        return "active" if server.node_id == description.controller_id else "standby"
    return "fenced" if server.fenced else "live"

"""`klamm cluster`: its id, its servers, their disks; `klamm cluster quorum`: the controllers' log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from klamm.cli.connect import connected
from klamm.cli.output import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, Bootstrap, Json, Timeout, print_json, print_rows, say

if TYPE_CHECKING:
    from klamm.admin import ClusterDescription, QuorumDescription, ReplicaOfQuorum, ServerDescription

_MIB = 1024 * 1024


app = typer.Typer(help="Show the cluster's servers, their disks, and the quorum of its controllers.")


@app.callback(invoke_without_command=True)
def cluster(
    context: typer.Context,
    log_dirs: Annotated[bool, typer.Option("--log-dirs", help="Show the brokers' log directories instead.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Shows the cluster's servers, or their log directories."""
    if context.invoked_subcommand is not None:
        return
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


@app.command("quorum")
def quorum(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """Shows the controllers of the quorum: who leads, and how far the others are behind."""
    with connected(bootstrap, timeout) as admin:
        description = admin.describe_quorum()
    rows = [
        (
            each.node_id,
            f"{each.host}:{each.port}",
            _role(each, description),
            each.end_index,
            each.lag,
            each.silent_ms,
        )
        for each in description.replicas
    ]
    columns = ("id", "address", "role", "end_index", "lag", "silent_ms")
    if as_json:
        print_json(
            {
                "leader_id": description.leader_id,
                "term": description.term,
                "high_watermark": description.high_watermark,
                "replicas": [dict(zip(columns, row, strict=True)) for row in rows],
            }
        )
        return
    say(f"leader {description.leader_id}, term {description.term}, committed up to {description.high_watermark}")
    print_rows(columns, rows, as_json=False)


def _role(replica: ReplicaOfQuorum, description: QuorumDescription) -> str:
    if replica.node_id == description.leader_id:
        return "leader"
    return "follower" if replica.is_voter else "observer"


def _state(kind: str, server: ServerDescription, description: ClusterDescription) -> str:
    if kind == "controller":
        return "active" if server.node_id == description.controller_id else "standby"
    return "fenced" if server.fenced else "live"

"""`klamm cluster` shows the cluster's id, its servers and their disks.

`status` shows the cluster's problems, and `quorum` the log of the controllers. `add-controller` and `remove-controller`
change which controllers vote (Kafka's `kafka-metadata-quorum`, KIP-853). `decommission` and `unregister` remove
brokers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from klamm.errors import KlammError
from klamm.model import TopicPartition
from klamm_cli.commands.balance import balance
from klamm_cli.commands.moving import Moving, wait_for_moves
from klamm_cli.console.change import DryRun, print_change, tense
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    print_json,
    print_lines,
    print_message,
    print_rows,
    print_state,
)
from klamm_cli.dry_run.servers import check_added_voter, check_removed_voter, find_registered
from klamm_cli.text.amounts import counted

if TYPE_CHECKING:
    from klamm.admin import Admin, ClusterDescription, QuorumDescription, ReplicaOfQuorum, ServerDescription

_MIB = 1024 * 1024
_ASKING_SHARE = 0.8
"""The share of --timeout for questions. The rest is for the start and the end of the command."""


app = new_app("Show servers, disks and the quorum; add and remove servers.", no_args_is_help=False)


@app.callback(invoke_without_command=True)
def cluster(
    context: typer.Context,
    log_dirs: Annotated[bool, typer.Option("--log-dirs", help="Show the brokers' log directories instead.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show the cluster's servers, or their log directories."""
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
                directory.path,
                "online" if directory.online else "offline",
                len(directory.replicas),
                sum(replica.size_bytes for replica in directory.replicas) // _MIB,
                directory.usable_bytes // _MIB,
            )
            for broker_id, directories in sorted(described.items())
            for directory in directories
        ]
        print_rows(("broker", "path", "state", "replicas", "used_mib", "free_mib"), disks, as_json=as_json)
        return
    kinds = {
        "controller": description.controllers,
        "broker": description.brokers,
        "coordinator": description.coordinators,
    }
    rows = [
        (kind, server.node_id, f"{server.host}:{server.port}", server.rack or None, _state(kind, server, description))
        for kind, servers in kinds.items()
        for server in servers
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
    print_message(f"cluster {description.cluster_id}")
    print_rows(columns, rows, as_json=False)


@app.command("status", epilog=examples("klamm cluster status", "klamm cluster status --json"))
def status(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """Show the state of the cluster and its problems.

    Exit status: 0 healthy, 1 degraded, 3 no server answered.

    A cluster without an active controller is degraded. A partition degrades the cluster if it has no leader, is
    under-replicated, or is below min.insync.replicas. A server degrades it while it is fenced, shuts down or sends no
    heartbeats. A log directory degrades it if it is offline, or if its disk is 90 % full. A hanging transaction
    degrades the cluster. So do a group whose records were deleted before the group read them, and a server that does
    not answer within --timeout."""
    from klamm_cli.status.gather import gather
    from klamm_cli.status.problems import problems
    from klamm_cli.status.screen import document, headline, summary, tables

    deadline_s = time.monotonic() + timeout * _ASKING_SHARE
    with connected(bootstrap, timeout) as admin:
        facts = gather(admin, deadline_s)
    found = problems(facts)
    if as_json:
        print_json(document(facts, found))
    else:
        print_state("degraded" if found else "healthy", headline(facts, found))
        if found:
            print_state("degraded", *(f"  - {problem.text}" for problem in found))
        for title, columns, rows in tables(facts):
            print_lines("", title.replace("_", " "))
            print_rows(columns, rows, as_json=False)
        print_lines("", *summary(facts))
    if found:
        raise typer.Exit(int(ExitStatus.FAILED))


@app.command("quorum", epilog=examples("klamm cluster quorum"))
def quorum(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """Show the quorum's leader and the others' lag."""
    with connected(bootstrap, timeout) as admin:
        description = admin.describe_quorum()
    rows = [
        (
            replica.node_id,
            replica.kind.name.lower(),
            f"{replica.host}:{replica.port}" if replica.host else None,
            _role(replica, description),
            replica.end_index,
            replica.lag,
            replica.silent_ms,
            replica.directory_id or None,
        )
        for replica in description.replicas
    ]
    columns = ("id", "kind", "address", "role", "end_index", "lag", "silent_ms", "directory_id")
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
    print_message(
        f"leader {description.leader_id}, term {description.term}, committed up to {description.high_watermark}"
    )
    print_rows(columns, rows, as_json=False)


app.command("balance", epilog=examples("klamm cluster balance --dry-run", "klamm cluster balance --throttle 20000000"))(
    balance
)


BrokerId = Annotated[int, typer.Argument(help="The broker's node.id.", min=0, metavar="BROKER", show_default=False)]


@app.command("decommission", epilog=examples("klamm cluster decommission 3 --dry-run", "klamm cluster decommission 3"))
def decommission(
    broker_id: BrokerId,
    wait: Annotated[bool, typer.Option(help="Wait until the broker has no replicas.")] = True,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Move all replicas off a broker.

    The replicas are balanced over the other brokers and racks. You can interrupt the command and start it again. When
    it has ended, stop the broker and run `klamm cluster unregister`."""
    with connected(bootstrap, timeout) as admin:
        left = admin.decommission_broker(broker_id, validate_only=validate_only)
        if wait and not validate_only:
            _wait_until_empty(admin, broker_id)
            left = 0
    partitions = f"replicas of {counted(left, 'partition')}"
    if left and validate_only:
        line = f"would move the {partitions} off broker {broker_id}"
    elif left:
        line = f"broker {broker_id} still has {partitions}: klamm reassign list shows them until they are moved"
    else:
        line = f"broker {broker_id} holds nothing: it can be stopped, and unregistered"
    document = {"broker": broker_id, "partitions_left": left}
    print_change(document, line, as_json=as_json, validate_only=validate_only)


def _wait_until_empty(admin: Admin, broker_id: int) -> None:
    """Waits until the broker has no replicas."""

    def find_moving() -> Moving:
        return {
            TopicPartition(name, partition.partition): partition
            for name, topic in admin.list_topics(include_internal=True).items()
            for partition in topic.partitions
            if broker_id in partition.removing_replicas
        }

    # Repeat the request, because a topic that was created since the last one may have replicas on the broker.
    wait_for_moves(admin, lambda: admin.decommission_broker(broker_id), find_moving)


@app.command("unregister", epilog=examples("klamm cluster unregister 3"))
def unregister(
    broker_id: BrokerId,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Remove a broker that is stopped for good.

    A broker that still runs registers again."""
    with connected(bootstrap, timeout) as admin:
        if validate_only:
            broker = find_registered(admin.describe_cluster(), broker_id)
            lines = [f"would unregister broker {broker_id}"]
            if not broker.fenced:
                lines.append("the broker still runs, so it would register again")
        else:
            admin.unregister_broker(broker_id)
            lines = [f"unregistered broker {broker_id}"]
    print_change({"unregistered": broker_id}, *lines, as_json=as_json, validate_only=validate_only)


ControllerId = Annotated[
    int, typer.Option("--controller-id", metavar="NUMBER", help="The controller's node.id.", min=0)
]
DirectoryId = Annotated[
    str | None,
    typer.Option(
        "--controller-directory-id",
        metavar="ID",
        help="The directory id of its metadata log [default: the latest known one].",
    ),
]


@app.command("add-controller", epilog=examples("klamm cluster add-controller --controller-id 4"))
def add_controller(
    controller_id: ControllerId,
    directory_id: DirectoryId = None,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Make a controller that follows the quorum a voter.

    First start the controller with controller.quorum.bootstrap.servers. `klamm cluster quorum` then shows it as an
    observer. The controller becomes a voter when it has caught up."""
    with connected(bootstrap, timeout) as admin:
        replica = _find_controller(admin, controller_id, directory_id, is_voter=False)
        if validate_only:
            check_added_voter(admin.describe_quorum(), controller_id)
        else:
            admin.add_raft_voter(replica.node_id, replica.directory_id)
    line = f"controller {controller_id} {tense(validate_only, 'votes', 'vote')}, directory {replica.directory_id}"
    document = {"added": controller_id, "directory_id": replica.directory_id}
    print_change(document, line, as_json=as_json, validate_only=validate_only)


@app.command("remove-controller", epilog=examples("klamm cluster remove-controller --controller-id 1"))
def remove_controller(
    controller_id: ControllerId,
    directory_id: DirectoryId = None,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Remove a controller from the quorum.

    The controller may be dead, and it may be the leader. If it runs, it stays an observer until you stop it."""
    with connected(bootstrap, timeout) as admin:
        replica = _find_controller(admin, controller_id, directory_id, is_voter=True)
        if validate_only:
            check_removed_voter(admin.describe_quorum(), controller_id)
        else:
            admin.remove_raft_voter(replica.node_id, replica.directory_id)
    verb = tense(validate_only, "votes no more", "vote no more")
    document = {"removed": controller_id, "directory_id": replica.directory_id}
    line = f"controller {controller_id} {verb}, directory {replica.directory_id}"
    print_change(document, line, as_json=as_json, validate_only=validate_only)


def _find_controller(admin: Admin, controller_id: int, directory_id: str | None, *, is_voter: bool) -> ReplicaOfQuorum:
    """Returns the voter or the observer with that id. Raises KlammError if there is none.

    An observer may appear twice, because its node had another directory before. The function returns the entry from
    which the leader received the latest message."""
    found = [
        replica
        for replica in admin.describe_quorum().replicas
        if replica.kind == 0
        and (replica.node_id, replica.is_voter) == (controller_id, is_voter)
        and directory_id in (None, replica.directory_id)
    ]
    if not found:
        what = "a voter" if is_voter else "an observer"
        raise KlammError(f"controller {controller_id} is not {what} of the quorum: klamm cluster quorum shows them all")
    return min(found, key=lambda replica: replica.silent_ms)


def _role(replica: ReplicaOfQuorum, description: QuorumDescription) -> str:
    if replica.is_voter and replica.node_id == description.leader_id:
        return "leader"
    return "follower" if replica.is_voter else "observer"


def _state(kind: str, server: ServerDescription, description: ClusterDescription) -> str:
    if kind == "controller":
        return "active" if server.node_id == description.controller_id else "standby"
    return "fenced" if server.fenced else "live"

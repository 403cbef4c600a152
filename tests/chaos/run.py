"""Runs a workload on real processes while faults strike them, and checks the answers that its clients got.

    python tests/chaos/run.py quorum --minutes 5
    python tests/chaos/run.py partitions --minutes 10
    python tests/chaos/run.py partitions --cluster up --minutes 10      the cluster is what `klamm up` runs
    python tests/chaos/run.py secured --minutes 10      TLS, logins and rights; certificates change all the time
    python tests/chaos/run.py transactions --minutes 10
    python tests/chaos/run.py retention --minutes 10      retention of seconds, which waits for groups
    python tests/chaos/run.py spark --minutes 20 --kills 100      runs until 100 processes were killed
    python tests/chaos/run.py clients --minutes 5 --kills 20        all brokers at once; real Kafka clients continue
    python tests/chaos/run.py spread --minutes 5        kills of `klamm topics spread` with a million records
    python tests/chaos/run.py interrupts --minutes 5        signals and cancellations strike the Python clients
    python tests/chaos/run.py quorum --minutes 5 --seed 42      the same faults in the same order; their times differ
    python tests/chaos/run.py partitions --minutes 1 --planted append-again      succeeds if it finds the bug

`--cluster up` runs the cluster that a user of `klamm up` has. The command starts killed processes again, so they are
not away for long. All processes share one host, so no cable is cut between two of them. Instead, packets are dropped by
a server's port, in either direction. The server then cannot be reached, or cannot answer, but it reaches other servers.
Disks are filled, and replicas moved, as in other clusters. In addition, the command itself is killed or ended, and run
again.

The exit status is 3 if records or metadata are not what they must be, and 1 if anything else failed. The directory with
logs and disks is kept in both cases.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import random
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from typing import Final

from tests.chaos.klammchaos import (
    client_workload,
    interrupt_workload,
    namespaces,
    partition_workload,
    quorum_workload,
    retention_workload,
    secured_workload,
    spark_workload,
    spread_workload,
    transaction_workload,
)
from tests.chaos.klammchaos.planted_broker import PLANTED_BUGS
from tests.support.violation import is_violation

VIOLATED: Final = 3
"""The status of a run that found a violation."""

WORKLOADS: Mapping[str, Callable[..., None]] = {
    "clients": client_workload.run,
    "interrupts": interrupt_workload.run,
    "partitions": partition_workload.run,
    "quorum": quorum_workload.run,
    "retention": retention_workload.run,
    "secured": secured_workload.run,
    "spark": spark_workload.run,
    "spread": spread_workload.run,
    "transactions": transaction_workload.run,
}
"""The workloads by name. Each one takes `duration_s`, `seed`, `directory`, and `only`, a part of the names of faults.
Each one raises AssertionError."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--minutes", type=float, default=5.0, help="how long faults strike (default 5)")
    parser.add_argument(
        "--kills",
        type=int,
        default=0,
        help="strike until so many processes, or times all brokers, were killed, too (spark, clients)",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults with this in their name")
    parser.add_argument("--keep", action="store_true", help="keep the directory with logs and disks")
    parser.add_argument("--seed", type=int, help="decides which faults (default: random)")
    parser.add_argument("--planted", choices=sorted(PLANTED_BUGS), help="brokers with this bug (partitions)")
    parser.add_argument(
        "--cluster",
        choices=sorted(partition_workload.CLUSTERS),
        default="nodes",
        help="processes at nodes of their own, or `klamm up` (partitions; default nodes)",
    )
    arguments = parser.parse_args()
    if (arguments.planted or arguments.cluster != "nodes") and arguments.workload != "partitions":
        parser.error("--planted and --cluster need the workload partitions")
    if arguments.kills and arguments.workload not in ("clients", "spark"):
        parser.error("--kills needs the workload clients or spark")
    if arguments.planted and arguments.cluster != "nodes":
        parser.error("--planted needs --cluster nodes: the brokers of `klamm up` are the real ones")
    return arguments


def main() -> int:
    """Runs the workload that the command line names. Returns the exit status."""
    arguments = parse_arguments()
    if arguments.workload not in ("interrupts", "spread"):
        namespaces.enter()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1_000_000_000)
    again = f"python tests/chaos/run.py {arguments.workload} --minutes {arguments.minutes:g} --seed {seed}"
    if arguments.only:
        again += f" --only {shlex.quote(arguments.only)}"
    workload: Callable[..., None] = WORKLOADS[arguments.workload]
    if arguments.kills:
        again += f" --kills {arguments.kills}"
        workload = functools.partial(workload, kills=arguments.kills)
    if arguments.cluster != "nodes":
        again += f" --cluster {arguments.cluster}"
        workload = functools.partial(partition_workload.run, arguments.cluster)
    if arguments.planted:
        again += f" --planted {arguments.planted}"
        workload = functools.partial(partition_workload.run_planted, arguments.planted)
    print(f"seed {seed}; again: {again}", flush=True)
    # After SIGTERM, end this program in order, so that the processes of the run end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    directory = pathlib.Path(tempfile.mkdtemp(prefix="klamm-chaos-"))
    try:
        workload(duration_s=arguments.minutes * 60, seed=seed, directory=directory, only=arguments.only)
    except Exception as error:  # noqa: BLE001 - every failure is printed, with the command that repeats it
        traceback.print_exc()
        print(f"FAILED, logs in {directory}; again: {again}", flush=True)
        return VIOLATED if is_violation(error) else 1
    if arguments.keep:
        print(f"logs in {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{'found' if arguments.planted else 'nothing was violated'}; again: {again}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

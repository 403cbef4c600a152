"""Finds calls by which the product asks the machine for the time, for chance or for threads, or ends its process.

Run: python tools/process_calls.py

A server or an asynchronous client takes these from its arguments, or from `klamm.process.PROCESS`. Then a simulation
can run it in virtual time, and the same seed tells the same story. `ADAPTERS` names the files that may ask the machine.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = ("klamm", "services")

TIMES: Final = (
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "sleep",
    "thread_time",
    "time",
    "time_ns",
)
CALLS: Final = frozenset(
    {f"time.{name}" for name in (*TIMES, "time_ns")}
    | {"concurrent.futures.ThreadPoolExecutor", "datetime.now", "os._exit", "os.urandom", "random.SystemRandom"}
    | {"secrets.choice", "secrets.randbits", "secrets.token_bytes", "secrets.token_hex", "secrets.token_urlsafe"}
    | {"uuid.uuid1", "uuid.uuid4"}
)
"""The calls that ask the machine, whatever their arguments."""
MODULES: Final = {"time": (*TIMES, "time_ns"), "secrets": None, "concurrent.futures": ("ThreadPoolExecutor",)}
"""The modules, and the names in them, that may not be imported by `from`. None means every name."""

ADAPTERS: Final = {
    "klamm/process.py": "the process of the operating system",
    "services/common/klamm_server/runtime/clock.py": "the machine's clocks",
    "services/controller/klamm_controller/log/rocks_database.py": "RocksDB, for which a simulation has its own",
    # The clients with threads. A simulation runs the asynchronous ones, which have the same core.
    "klamm/consumer/sync_consumer.py": "the synchronous consumer",
    "klamm/consumer/threads/worker_pool.py": "the threads of consumers",
    "klamm/producer/future.py": "the synchronous producer",
    "klamm/producer/producer.py": "the synchronous producer",
    "klamm/threads/waiting_threads.py": "the threads of synchronous clients",
    # gRPC, TLS and logins by tokens, which are not simulated.
    "klamm/rpc/client_tls.py": "TLS",
    "klamm/rpc/sasl_sources.py": "the age of tokens",
    "services/common/klamm_server/child_processes.py": "the certificates of real processes",
    "services/common/klamm_server/rpc/grpc_server.py": "gRPC",
    "services/common/klamm_server/security/logins/jwks.py": "keys from an HTTP server",
    "services/common/klamm_server/security/server_tls.py": "TLS",
    # Durations that only metrics show.
    "services/broker/klamm_broker/io/request_times.py": "metrics",
    "services/common/klamm_server/metrics/metrics_server.py": "metrics",
    "services/common/klamm_server/metrics/process_metrics.py": "metrics",
    "services/common/klamm_server/runtime/garbage.py": "metrics of the garbage collector",
    "services/controller/klamm_controller/log/store_writer.py": "metrics",
    "services/coordinator/klamm_coordinator/rpc/servicer.py": "metrics",
    # Constructors whose argument is the source of chance, which is the system's by default.
    "services/broker/klamm_broker/server.py": "its argument rng",
    "services/common/klamm_server/main.py": "its argument rng",
    "services/controller/klamm_controller/log/raft_store.py": "its argument rng",
    "services/controller/klamm_controller/log/recovery.py": "its argument rng",
    "services/controller/klamm_controller/server.py": "its argument rng",
    "services/coordinator/klamm_coordinator/server.py": "its argument rng",
    # Programs that make files or processes and serve nobody.
    "klamm/testing/cluster.py": "starts real processes",
    "klamm/testing/plugin.py": "names for the tests of others",
    "services/controller/klamm_controller/log/bootstrap.py": "`klamm format`",
    "services/embedded/klamm_embedded/data_dir.py": "`klamm up`",
    "services/embedded/klamm_embedded/secured.py": "`klamm up`",
}
"""The files that may ask the machine, and what for."""


def findings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each call that asks the machine, and of each import that would hide one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names = MODULES[node.module]
            if any(names is None or alias.name in names for alias in node.names):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Attribute):
            if ast.unparse(node) in CALLS:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node) == "random.Random()":
            yield node.lineno, ast.unparse(node)


def main() -> int:
    """Prints each finding as file:line. Returns 1 if there is one."""
    found, used = [], set()
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for line, text in findings(ast.parse(path.read_text())):
                if name in ADAPTERS:
                    used.add(name)
                else:
                    found.append(f"{name}:{line}: {text}: take it from an argument or from klamm.process")
    found += [f"tools/process_calls.py: {name} asks the machine for nothing" for name in ADAPTERS if name not in used]
    print("\n".join(found) or "no calls past klamm.process found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

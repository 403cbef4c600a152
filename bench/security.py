"""What security costs: Klamm beside Apache Kafka with the same certificates, users and rights, in turns in one run.

    python bench/security.py [--only data,logins] [--rounds 3] [--size 1] [--before DIRECTORY]

Every ratio is the median of the ratios of single rounds, in which one is measured after the other. CPU is that of the
server's processes.

| part       | what                                                                                      |
|------------|-------------------------------------------------------------------------------------------|
| data       | produce and consume by librdkafka, 16 KiB and large batches, at each kind of listener     |
| requests   | prepared requests by a plain socket, with TLS and without                                 |
| authorizer | the same without TLS, with an authorizer and without; Klamm alone                         |
| off        | the same without any security, and by the checkout in `DIRECTORY`: one from before it was |
| logins     | handshakes and logins a second, 1,000 reconnects, and what another client notices of them |
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
from collections.abc import Callable, Iterator

import psutil

from bench import security_data, security_logins, security_requests
from bench.peer_figures import header

PARTS: dict[str, tuple[str, Callable[[argparse.Namespace], Iterator[str]]]] = {
    "data": (security_data.HEADER, security_data.measure_data),
    "requests": (security_requests.HEADER, security_requests.measure_requests),
    "authorizer": (security_requests.HEADER, security_requests.measure_authorizer),
    "off": (security_requests.HEADER, security_requests.measure_off),
    "logins": (header("Kafka"), security_logins.measure_logins),
}
"""The head of each measurement's table, and the function that makes its lines."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=float, default=1.0, help="so much of the data, and of the time")
    parser.add_argument("--before", type=pathlib.Path, help="a checkout from before, with gRPC's code built")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(f"{platform.platform()}, {psutil.cpu_count()} CPUs", flush=True)
    for part in wanted:
        if part == "off" and options.before is None:
            continue
        head, measure = PARTS[part]
        print(f"\n{part}, load before {os.getloadavg()[0]:.1f}\n\n{head}", flush=True)
        for line in measure(options):
            print(line, flush=True)
        print(f"\nload after {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()

"""A fuzzer of the client's compiled core, under AddressSanitizer and UndefinedBehaviorSanitizer.

Each input is a random or damaged batch, an answer, columns or records to send. Its outcome is compared with that of
pure Python.

Run: make fuzz, or python tests/fuzz/core.py [--inputs 10000000] [--seed 1]

It stops at the first input whose outcomes differ, or at a report of a sanitizer, and prints the command that runs this
input again. The inputs are in `core_checks.py`. It needs gcc with libasan and libubsan.
"""

from __future__ import annotations

import argparse
import mmap
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

if not __package__:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))

from tests.support import sanitized_core
from tests.support.seeds import run_seed

REPORT_EVERY = 100_000
_NUMBER = struct.Struct("=Q")


class Finding(AssertionError):
    """An input that broke something."""


def fuzz(core: pathlib.Path, *, seed: int, first: int, inputs: int) -> None:
    """Runs the inputs in a process with the sanitized core. Raises Finding with the report, and with the command that
    runs the input again."""
    with tempfile.NamedTemporaryFile(prefix="klamm-fuzz-") as progress:
        progress.write(_NUMBER.pack(first))
        progress.flush()
        command = [sys.executable, __file__, "--in", str(core), "--progress", progress.name]
        done = subprocess.run(
            [*command, *numbers(seed, first, inputs)],
            env=sanitized_core.environment(),
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        progress.seek(0)
        (number,) = _NUMBER.unpack(progress.read())
    if done.returncode:
        again = " ".join(["python tests/fuzz/core.py", *numbers(seed, number, 1)])
        raise Finding(f"{done.stderr}\ninput {number} broke something; again: {again}")


def numbers(seed: int, first: int, inputs: int) -> list[str]:
    return ["--seed", str(seed), "--first", str(first), "--inputs", str(inputs)]


def run_here(core: pathlib.Path, progress_file: pathlib.Path, *, seed: int, first: int, inputs: int) -> None:
    """Runs the inputs in this process, which has the sanitizers. Keeps the number of the current input in
    `progress_file`, because the process may end at any of them."""
    sanitized_core.load(core)
    from tests.fuzz.core_checks import Checks

    checks = Checks(seed)
    with progress_file.open("r+b") as file, mmap.mmap(file.fileno(), _NUMBER.size) as progress:
        for number in range(first, first + inputs):
            _NUMBER.pack_into(progress, 0, number)
            checks.run(number)
            if (number + 1) % REPORT_EVERY == 0:
                print(f"inputs={number + 1 - first} cpu_s={time.process_time():.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=run_seed())
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--in", dest="core", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--progress", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    which = {"seed": options.seed, "first": options.first, "inputs": options.inputs}
    if options.core is not None:
        run_here(options.core, options.progress, **which)
        return
    problem = sanitized_core.missing()
    if problem is not None:
        sys.exit(f"the compiled core was not fuzzed: {problem}")
    core = pathlib.Path("build/fuzz/core")
    core.mkdir(parents=True, exist_ok=True)
    sanitized_core.build(core.resolve())
    print(f"seed={options.seed}; again: python tests/fuzz/core.py --seed {options.seed}", flush=True)
    try:
        fuzz(core.resolve(), **which)
    except Finding as finding:
        sys.exit(str(finding))


if __name__ == "__main__":
    main()

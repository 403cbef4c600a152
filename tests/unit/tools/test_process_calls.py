"""Tests which calls the check of the product's calls to the machine finds."""

from __future__ import annotations

import ast

import pytest

from tools.process_calls import findings


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.monotonic()",
        "clock = time.time_ns",
        "from time import perf_counter",
        "rng = random.Random()",
        "rng = rng or random.SystemRandom()",
        "uuid.uuid4()",
        "from concurrent.futures import ThreadPoolExecutor",
        "os._exit(1)",
        "datetime.now(UTC)",
        "from secrets import token_bytes",
    ],
)
def test_calls_to_the_machine_are_found(code: str) -> None:
    assert list(findings(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "rng = random.Random(1)",
        "def f(rng: random.Random) -> None: ...",
        "time.gmtime(0)",
        "PROCESS.get().wall_ms()",
        "asyncio.get_running_loop().time()",
    ],
)
def test_other_code_is_accepted(code: str) -> None:
    assert not list(findings(ast.parse(code)))

"""Compares Klamm's text of distinguished names with Java's, for thousands of generated names in one JVM."""

from __future__ import annotations

import random
import subprocess

import pytest

from klamm.security.distinguished_name import java_text
from tests.support import java_programs
from tests.support.der import attribute, name, rdn
from tests.support.seeds import run_seed

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

NAMES = 20_000
KEYWORDS = [
    *("2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11"),
    *("0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1"),
]
NUMBERS = [
    *("1.2.840.113549.1.9.1", "2.5.4.5", "2.5.4.4", "2.5.4.12", "2.5.4.42", "2.5.4.46", "2.5.4.65", "2.5.29.17"),
    *("1.3.6.1.4.1.42.2.11.2.1", "2.999.3", "0.9.2342.19200300.100.1.3", "1.3.6.1.4.1.99999999999.1", "1.39.1"),
]
STRINGS = (0x0C, 0x13, 0x16, 0x14, 0x1B)
CHARACTERS = "ab Z09 ,=+<>#;\"\\/'()-.:?_@*&!$%^~|\t\n\r\0äß€漢😀  "


def random_name(rng: random.Random) -> bytes:
    return name(*(random_rdn(rng) for _ in range(rng.randint(0, 4))))


def random_rdn(rng: random.Random) -> bytes:
    return rdn(*sorted(random_attribute(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))))


def random_attribute(rng: random.Random) -> bytes:
    number = rng.choice(KEYWORDS if rng.random() < 0.8 else NUMBERS)
    kind = rng.random()
    if kind < 0.05:
        return attribute(number, 0x1E, "".join(rng.choices("ab,é漢 ", k=rng.randint(0, 6))).encode("utf-16-be"))
    if kind < 0.1:
        return attribute(number, 0x02, bytes([rng.randint(0, 127)]))
    text = "".join(rng.choices(CHARACTERS, k=rng.choice((0, 1, 2, 5, 20, 200))))
    return attribute(number, 0x0C if kind < 0.7 else rng.choice(STRINGS), text)


def test_distinguished_names_are_written_as_java_writes_them() -> None:
    rng = random.Random(run_seed())
    names = [random_name(rng) for _ in range(NAMES)]

    run = subprocess.run(
        java_programs.command("klamm.DistinguishedNames"),
        input="".join(f"{name.hex()}\n" for name in names),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )

    answers = run.stdout.splitlines()
    assert len(answers) == NAMES
    compared = [(name, text) for name, text in zip(names, answers, strict=True) if text != "refused"]
    assert len(compared) > 0.8 * NAMES
    for encoded, expected in compared:
        assert java_text(encoded) == bytes.fromhex(expected).decode(), encoded.hex()

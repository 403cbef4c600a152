"""Tests that the checks of the workload "transactions" find planted violations."""

from __future__ import annotations

import random

import pytest

from tests.chaos.klammchaos.transaction_checks import violations
from tests.chaos.klammchaos.transaction_load import Fate, Output, decode, encode

COUNT = 100
FATES = {
    **{f"w.{number}": Fate.COMMITTED for number in range(10)},
    "w.lost": Fate.UNKNOWN,
    "w.back": Fate.ABORTED,
}


def good() -> dict[int, list[Output]]:
    output: dict[int, list[Output]] = {0: [], 1: []}
    for number in range(COUNT):
        output[number % 2].append(Output(f"w.{number // 10}", number))
    return output


def test_a_correct_transactional_output_has_no_violations() -> None:
    assert violations(good(), good(), FATES, COUNT) == []


def test_a_transaction_of_unknown_fate_may_be_there_or_not() -> None:
    output = good()
    output[0].append(Output("w.lost", COUNT))

    assert violations(output, output, FATES, COUNT + 1) == []


@pytest.mark.parametrize(
    ("damage", "story"),
    [
        (lambda output: output[0].pop(7), "do not count"),
        (lambda output: output[1].append(output[0][3]), "more than once"),
        (lambda output: output[1].append(Output("w.1", COUNT)), "of no input"),
        (lambda output: output.update({0: [Output("w.back", 0), *output[0][1:]]}), "aborted transactions"),
        (lambda output: output.update({0: [Output("stranger", 0), *output[0][1:]]}), "of nobody"),
    ],
)
def test_a_planted_damage_of_the_output_is_found(damage, story) -> None:
    output = good()
    damage(output)

    assert any(story in violation for violation in violations(output, output, FATES, COUNT))


def test_a_consumer_that_observed_another_output_is_found() -> None:
    observed = good()
    random.Random(1).shuffle(observed[0])

    assert any("not the same" in violation for violation in violations(good(), observed, FATES, COUNT))
    observed = good()
    observed[0].insert(3, Output("w.back", 6))
    found = violations(good(), observed, FATES, COUNT)
    assert any("aborted transactions" in violation for violation in found)


def test_a_committed_transaction_missing_in_the_output_is_found() -> None:
    fates = {**FATES, "w.gone": Fate.COMMITTED}

    assert any("are not there" in violation for violation in violations(good(), good(), fates, COUNT))


def test_an_encoded_record_keeps_its_transaction_and_number() -> None:
    assert decode(encode(Output("worker-1.17", 42))) == Output("worker-1.17", 42)

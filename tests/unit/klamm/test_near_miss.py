"""Tests near misses, which differ by one or two letters and no more."""

from __future__ import annotations

import random

import pytest

from klamm.near_miss import LETTERS_MAX, distance, near_miss, near_misses
from tests.support import seeds


@pytest.mark.parametrize(
    ("first", "second", "letters"),
    [
        ("acks", "acks", 0),
        ("", "ab", 2),
        ("acsk", "acks", 1),
        ("batchsise", "batchsize", 1),
        ("batchsiz", "batchsize", 1),
        ("batchhsize", "batchsize", 1),
        ("minisnyncreplica", "mininsyncreplicas", 2),
        ("abcd", "cdab", LETTERS_MAX + 1),
        ("abcdefgh", "stuvwxyz", LETTERS_MAX + 1),
        ("a", "abcd", LETTERS_MAX + 1),
        ("xyz", "", LETTERS_MAX + 1),
    ],
)
def test_the_distance_counts_changed_letters_up_to_its_bound(first: str, second: str, letters: int) -> None:
    assert distance(first, second) == distance(second, first) == letters


def test_the_distance_is_at_most_the_number_of_random_changes() -> None:
    """The distance of a name with one or two random changes is never greater than the number of changes."""
    rng = random.Random(seeds.run_seed())
    for _ in range(500):
        name = "".join(rng.choices("abc", k=rng.randint(3, 12)))
        changed = list(name)
        changes = rng.randint(1, LETTERS_MAX)
        for _ in range(changes):
            place = rng.randrange(len(changed))
            match rng.randrange(3):
                case 0:
                    changed[place] = rng.choice("abcd")
                case 1:
                    changed.insert(place, rng.choice("abcd"))
                case _:
                    del changed[place]
        assert distance(name, "".join(changed)) <= changes, (name, changed)


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("batch.sise", {"batch.size", "linger.ms"}, "batch.size"),
        ("broker.session.timeout", {"broker.session.timeout.ms"}, "broker.session.timeout.ms"),
        ("startingofsets", {"startingOffsets"}, "startingOffsets"),
        ("KLAMM_NUM_IO_THREAD", {"KLAMM_NUM_IO_THREADS"}, "KLAMM_NUM_IO_THREADS"),
        # Klamm's doctor once suggested these for names of Kafka.
        ("num.network.threads", {"log.cleaner.threads"}, None),
        ("socket.receive.buffer.bytes", {"socket.send.buffer.bytes"}, None),
        ("request.required.acks", {"request.timeout.ms"}, None),
        ("xyzzy", set(), None),
    ],
)
def test_only_a_name_within_two_letters_is_offered(name: str, known: set[str], expected: str | None) -> None:
    assert near_miss(name, known) == expected


def test_suggestions_are_sorted_by_distance_and_then_by_name() -> None:
    known = ["fetch.mix.bit", "fetch.min.bytes", "fetch.max.bytes", "fetch.moo.bytes"]
    assert near_misses("fetch.mix.bytes", known) == ["fetch.max.bytes", "fetch.min.bytes", "fetch.moo.bytes"]

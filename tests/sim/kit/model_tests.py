"""The tests that every simulation passes: a slice of seeds violates nothing, and every planted bug is found.

A test file of a simulation has a subclass with `model` and `slice_seeds`.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.sim.kit.runner import Model, Outcome, run_slice
from tests.support import seeds


class ModelTests:
    """Base of a class of tests."""

    model: ClassVar[Model]
    slice_seeds: ClassVar[int]
    different_seeds: ClassVar[tuple[int, int]] = (3, 4)
    """Two seeds whose events differ."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        known = {name: bug.known_seed for name, bug in self.model.mutations.items() if bug.known_seed is not None}
        if "bug" in metafunc.fixturenames:
            metafunc.parametrize("bug", known)
        if "known_seed" in metafunc.fixturenames:
            metafunc.parametrize("known_seed", sorted(set(known.values())))

    def check_outcome(self, outcome: Outcome) -> None:
        """The seed got somewhere."""
        assert outcome.committed_count > 0

    @pytest.mark.timeout(600)  # a minute of computing, and others may want the cores
    def test_a_slice_of_seeds_violates_nothing(self) -> None:
        run_slice(self.model, seeds.run_seed(), self.slice_seeds)

    def test_planted_bugs_are_found(self, bug: str) -> None:
        known_seed = self.model.mutations[bug].known_seed
        assert known_seed is not None
        with self.model.planted(bug), pytest.raises(AssertionError):
            self.model.run_seed(known_seed, None)

    def test_every_bug_has_a_known_seed_or_a_story(self) -> None:
        for name, bug in self.model.mutations.items():
            assert bug.known_seed is not None or list(self.model.stories(name)), name

    def test_a_known_seed_violates_nothing_without_its_bug(self, known_seed: int) -> None:
        self.check_outcome(self.model.run_seed(known_seed, None))

    def test_a_planted_bug_is_removed_completely(self) -> None:
        def attributes() -> list[object]:
            return [vars(owner)[name] for bug in self.model.mutations.values() for owner, name, _ in bug.changes]

        before = attributes()
        for name in self.model.mutations:
            with self.model.planted(name):
                assert attributes() != before
        assert attributes() == before

    def test_the_same_seed_gives_the_same_run_and_another_seed_another(self) -> None:
        one, other = self.different_seeds
        assert self.model.run_seed(one, None) == self.model.run_seed(one, None)
        assert self.model.run_seed(one, None) != self.model.run_seed(other, None)

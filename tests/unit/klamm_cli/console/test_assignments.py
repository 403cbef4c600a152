from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm_cli.console.assignments import parse_assignments


def test_assignments_keep_what_follows_the_first_equals_sign():
    assert parse_assignments(["a=b=c", " d = e ", "f="], "--set") == {"a": "b=c", "d": "e", "f": ""}


@pytest.mark.parametrize("pair", ["", "a", "=b"])
def test_an_assignment_needs_a_name_and_an_equals_sign(pair):
    with pytest.raises(ConfigError, match=f"--set '{pair}': expected name=value"):
        parse_assignments([pair], "--set")

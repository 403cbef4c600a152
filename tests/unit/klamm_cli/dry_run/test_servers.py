"""Tests the refusals of a quorum that a dry run foresees."""

from __future__ import annotations

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_cli.dry_run.servers import check_added_voter, check_removed_voter
from tests.support.status_world import controller, quorum


def test_a_controller_whose_id_votes_with_another_directory_cannot_be_added() -> None:
    described = quorum(controller(1), controller(2), controller(2, is_voter=False))
    with pytest.raises(EXCEPTIONS[ErrorCode.DUPLICATE_VOTER], match="controller 2: "):
        check_added_voter(described, 2)
    check_added_voter(quorum(controller(1), controller(2, is_voter=False)), 2)


def test_the_last_voter_cannot_be_removed() -> None:
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_REQUEST]):
        check_removed_voter(quorum(controller(1), controller(2, is_voter=False)), 1)
    check_removed_voter(quorum(controller(1), controller(2)), 1)

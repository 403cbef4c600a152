from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata, to_commit

TP = TopicPartition("t", 0)


def test_a_plain_number_is_an_offset_without_metadata() -> None:
    given = OffsetAndMetadata(5, "a note", 3)
    assert to_commit({("t", 0): 7, ("t", 1): given}) == {TP: OffsetAndMetadata(7), TopicPartition("t", 1): given}


@pytest.mark.parametrize("offset", [-1, -2, OffsetAndMetadata(-1)])
def test_a_negative_offset_is_refused_by_the_client(offset: int | OffsetAndMetadata) -> None:
    with pytest.raises(ConfigError, match=r"offset -\d of t-0: expected 0 or more"):
        to_commit({TP: offset})

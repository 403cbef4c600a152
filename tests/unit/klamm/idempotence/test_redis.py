from __future__ import annotations

import logging
from typing import Any

import pytest

from klamm import ConsumerRecord
from klamm.errors import ConfigError
from klamm.idempotence import RedisProcessedIds
from tests.support.consumer_records import consumer_record


class Keys:
    """Keys as Redis has them, without a server. `now_ms` is moved by the test."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.ends_ms: dict[str, int] = {}
        self.fails = False

    def set(self, name: str, value: str, *, px: int, nx: bool) -> bool | None:
        assert nx
        if self.ends_ms.get(name, -1) > self.now_ms:
            return None
        self.ends_ms[name] = self.now_ms + px
        return True

    def delete(self, name: str, /) -> int:
        if self.fails:
            raise ConnectionError("redis is gone")
        return int(self.ends_ms.pop(name, None) is not None)


def fail(record: ConsumerRecord[Any, Any]) -> None:
    raise ArithmeticError(record.offset)


def test_a_record_is_skipped_until_its_key_expires() -> None:
    keys, applied = Keys(), []
    processed = RedisProcessedIds(keys, group="mail", expiry_ms=1_000)

    assert processed.process(applied.append, consumer_record(0), consumer_record(1), consumer_record(0)) == 2
    keys.now_ms = 999
    assert processed.process(applied.append, consumer_record(0)) == 0
    keys.now_ms = 1_000
    assert processed.process(applied.append, consumer_record(0)) == 1
    assert [record.offset for record in applied] == [0, 1, 0]
    assert set(keys.ends_ms) == {"klamm:processed:mail:orders:0:0", "klamm:processed:mail:orders:0:1"}


def test_a_record_whose_effect_failed_can_be_processed_again() -> None:
    processed = RedisProcessedIds(Keys(), group="mail", expiry_ms=1_000)

    with pytest.raises(ArithmeticError):
        processed.process(fail, consumer_record(0))
    assert processed.process(lambda record: None, consumer_record(0)) == 1


def test_the_exception_of_the_effect_is_raised_although_the_key_stays(caplog: pytest.LogCaptureFixture) -> None:
    keys = Keys()
    processed = RedisProcessedIds(keys, group="mail", expiry_ms=1_000)
    keys.fails = True

    with caplog.at_level(logging.ERROR), pytest.raises(ArithmeticError):
        processed.process(fail, consumer_record(0))
    assert "could not delete key=klamm:processed:mail:orders:0:0" in caplog.text
    assert processed.process(fail, consumer_record(0)) == 0


def test_an_id_of_the_user_names_the_key() -> None:
    keys = Keys()
    RedisProcessedIds(keys, group="mail", expiry_ms=1_000, id_of=lambda record: record.key.decode()).process(
        lambda record: None, consumer_record(0, key=b"a-7")
    )

    assert list(keys.ends_ms) == ["klamm:processed:mail:a-7"]


def test_an_expiry_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="expiry_ms=0, expected a number above 0"):
        RedisProcessedIds(Keys(), group="mail", expiry_ms=0)

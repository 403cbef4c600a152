"""Tests that a measurement's topic is deleted whatever ends the measurement."""

from __future__ import annotations

import contextlib

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm_cli.console import interrupt
from klamm_cli.perf import own_topic as module
from klamm_cli.perf.own_topic import PREFIX, TopicShape, own_topic
from tests.support.interrupts import interrupted_everywhere

SHAPE = TopicShape(partitions=2, replication_factor=1, configs={"retention.ms": "1"})


class Topics:
    """The topics of a cluster, as an Admin client creates and deletes them."""

    def __init__(self, *, deletes: bool = True) -> None:
        self.topics = {}
        self._deletes = deletes

    def create_topics(self, topics):
        self.topics.update({topic.name: topic for topic in topics})

    def delete_topics(self, names):
        if not self._deletes:
            raise KlammError("no controller")
        for name in names:
            if name not in self.topics:
                raise EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION](name)
            del self.topics[name]


@pytest.mark.parametrize("fsync", [False, True])
def test_the_topic_has_the_shape_and_is_deleted_at_the_end(fsync):
    cluster = Topics()
    with own_topic(cluster, SHAPE, fsync=fsync) as name:
        assert name.startswith(PREFIX)
        topic = cluster.topics[name]
        assert (topic.partition_count, topic.replication_factor) == (2, 1)
        assert topic.configs["retention.ms"] == "1"
        assert topic.configs.get("flush.messages") == ("1" if fsync else None)
    assert cluster.topics == {}


def test_an_error_of_the_measurement_is_kept():
    cluster = Topics()
    with pytest.raises(ZeroDivisionError), own_topic(cluster, SHAPE, fsync=False):
        raise ZeroDivisionError
    assert cluster.topics == {}


def test_a_topic_that_was_not_created_is_not_missed():
    cluster = Topics()
    cluster.create_topics = lambda topics: 1 / 0
    with pytest.raises(ZeroDivisionError), own_topic(cluster, SHAPE, fsync=False):
        pass


def test_a_topic_that_cannot_be_deleted_is_named_with_the_command_that_does_it(capsys):
    with own_topic(Topics(deletes=False), SHAPE, fsync=False) as name:
        pass
    assert " ".join(capsys.readouterr().err.split()).endswith(
        f"no controller; `klamm topics delete {name}` does it later"
    )


def test_a_signal_at_any_instruction_leaves_no_topic():
    cluster = Topics()
    ended = []

    def run():
        ended.append(False)
        with own_topic(cluster, SHAPE, fsync=True):
            pass
        ended[-1] = True

    def check():
        assert cluster.topics == {}

    def signal():
        # As the handler of signals does. It would also change how the next signal acts on this process.
        interrupt._react()

    runs = interrupted_everywhere(run, module, interrupt, contextlib, check=check, interrupt=signal, is_signal=True)
    assert runs > 20
    assert ended == [False] * runs + [True]

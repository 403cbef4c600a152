"""Tests which brokers Metadata lists a while longer, and that nothing else considers them live."""

from __future__ import annotations

from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.metadata_pb2 import (
    BrokerChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.recently_fenced_brokers import RecentlyFencedBrokers
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay

LISTED_MS = 9_000


class World:
    """Three live brokers as broker 1 sees them."""

    def __init__(self, *fenced: int) -> None:
        self.now_ms = 1_000_000
        self.image = MetadataImage.empty()
        for number in (1, 2, 3):
            self.register(number, epoch=number, fenced=number in fenced)
        self.view = ListenerMetadata(
            lambda: self.image, 1, "KAFKA", RecentlyFencedBrokers(lambda: self.image, self, listed_ms=LISTED_MS).ids
        )

    def wall_ms(self) -> int:
        raise NotImplementedError

    def monotonic_ms(self) -> int:
        return self.now_ms

    def replay(self, record: MetadataRecord) -> None:
        self.image = replay(self.image, [record], self.image.end_index + 1)

    def register(self, broker_id: int, *, epoch: int, fenced: bool) -> None:
        record = RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=epoch,
            fenced=fenced,
            kafka_endpoint=Endpoint(host="host", port=broker_id),
        )
        self.replay(MetadataRecord(register_broker=record))

    def change(self, broker_id: int, *, fenced: bool, shutdown: bool = False) -> None:
        record = BrokerChangeRecord(
            broker_id=broker_id, broker_epoch=broker_id, fenced=fenced, in_controlled_shutdown=shutdown
        )
        self.replay(MetadataRecord(broker_change=record))

    def listed(self) -> list[int]:
        return [one.broker_id for one in self.view.listed()]


def test_a_fenced_broker_is_listed_for_a_session_timeout_and_coordinates_nothing() -> None:
    world = World()
    assert world.listed() == [1, 2, 3]
    world.change(2, fenced=True)
    assert world.listed() == [1, 2, 3]
    assert [broker.broker_id for broker in world.view.brokers()] == [1, 3]
    world.now_ms += LISTED_MS - 1
    # Another change of the brokers does not prolong the time.
    world.change(3, fenced=True)
    assert world.listed() == [1, 2, 3]
    world.now_ms += 1
    assert world.listed() == [1, 3]
    # The broker returned and died again, and no request came in between.
    world.register(2, epoch=9, fenced=True)
    assert world.listed() == [1, 2, 3]


def test_a_broker_that_has_just_started_lists_the_fenced_brokers_for_a_session_timeout() -> None:
    world = World(2, 3)
    assert world.listed() == [1, 2, 3]
    world.change(3, fenced=False)
    world.now_ms += LISTED_MS
    assert world.listed() == [1, 3]


def test_a_fenced_broker_is_not_listed_after_a_controlled_shutdown_or_unregistration() -> None:
    world = World()
    world.change(2, fenced=False, shutdown=True)
    assert world.listed() == [1, 2, 3]
    world.change(2, fenced=True, shutdown=True)
    world.change(3, fenced=True)
    world.replay(MetadataRecord(unregister_broker=UnregisterBrokerRecord(broker_id=3, broker_epoch=3)))
    assert world.listed() == [1]

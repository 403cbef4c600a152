"""What a developer sees of a client in a debugger, in a traceback or in `help`."""

from __future__ import annotations

import asyncio
import pydoc

import pytest

from klamm import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, ConsumerRecord, Producer, TopicPartition
from klamm.errors import SerializationError

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "client.id": "app"}
SHOWN = "client.id=app bootstrap.servers=127.0.0.1:1"


def test_a_producer_shows_its_settings_and_its_end() -> None:
    with Producer(SETTINGS) as producer:
        assert repr(producer) == f"<Producer {SHOWN}>"
    assert repr(producer) == f"<Producer {SHOWN} closed>"


def test_a_consumer_shows_its_group_topics_and_partitions() -> None:
    with Consumer(SETTINGS, group_id="g") as consumer:
        consumer.subscribe(["orders", "clicks"])
        assert repr(consumer) == f"<Consumer {SHOWN} group.id=g topics=clicks,orders partitions=0>"
    with Consumer(SETTINGS) as consumer:
        consumer.assign([TopicPartition("orders", 0), TopicPartition("orders", 1)])
        assert repr(consumer) == f"<Consumer {SHOWN} partitions=2>"
    assert repr(consumer) == f"<Consumer {SHOWN} closed>"


def test_an_admin_shows_its_settings() -> None:
    with Admin(SETTINGS) as admin:
        assert repr(admin) == f"<Admin {SHOWN}>"


def test_the_asynchronous_clients_show_the_same() -> None:
    async def shown() -> list[str]:
        clients = AsyncProducer(SETTINGS, transactional_id="t"), AsyncConsumer(SETTINGS), AsyncAdmin(SETTINGS)
        texts = [repr(client) for client in clients]
        for client in clients:
            await client.close()
        return texts

    assert asyncio.run(shown()) == [
        f"<AsyncProducer {SHOWN} transactional.id=t>",
        f"<AsyncConsumer {SHOWN} partitions=0>",
        f"<AsyncAdmin {SHOWN}>",
    ]


def test_help_explains_the_fields_of_a_record() -> None:
    text = pydoc.plain(pydoc.render_doc(ConsumerRecord))
    assert "milliseconds since the epoch" in text
    assert "key, value: as `key.deserializer` and `value.deserializer` return them" in text


def test_a_traceback_names_an_error_that_can_be_imported() -> None:
    with Producer(SETTINGS) as producer, pytest.raises(SerializationError, match=r"set value\.serializer") as raised:
        producer.send("t", "text")
    assert raised.type.__module__ == "klamm.errors"

"""An idempotent Kafka producer that sends its batches without a wait for the answers to earlier ones."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from klamm.records import encode_batch
from klamm_broker.kafka.api import ApiKey
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import wait_until

TIMEOUT_MS = 30_000
PRODUCE_VERSION = 9
TIME_MS = 1_700_000_000_000


class PipelinedProducer:
    """A producer for one partition. It uses the connection alone."""

    def __init__(self, wire: KafkaWire, topic: str, partition: int = 0) -> None:
        self._wire = wire
        self._topic = topic
        self._partition = partition
        # A broker of Kafka refuses for some moments after its start.
        wait_until(self._get_producer_id)

    def send(self, values: Sequence[bytes], *, first_sequence: int) -> list[ErrorCode]:
        """Sends one batch of one record for each value, all of them before the first answer. Returns the error codes of
        the answers. The sequence numbers begin with `first_sequence`."""
        for sequence, value in enumerate(values, start=first_sequence):
            self._wire.send(ApiKey.PRODUCE, PRODUCE_VERSION, self._request(value, sequence))
        return [self._answer() for _ in values]

    def _get_producer_id(self) -> bool:
        asked = {"transactional_id": None, "transaction_timeout": TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1}
        given = self._wire.ask(ApiKey.INIT_PRODUCER_ID, 4, asked)
        self._producer_id, self._producer_epoch = given.producer_id, given.producer_epoch
        return given.error_code is ErrorCode.none

    def _request(self, value: bytes, sequence: int) -> dict[str, object]:
        batch = encode_batch(
            [(TIME_MS, None, value, ())],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
        )
        partition = {"index": self._partition, "records": bytes(batch)}
        return {
            "transactional_id": None,
            "acks": -1,
            "timeout": TIMEOUT_MS,
            "topic_data": [{"name": self._topic, "partition_data": [partition]}],
        }

    def _answer(self) -> ErrorCode:
        (topic,) = self._wire.receive(ApiKey.PRODUCE, PRODUCE_VERSION).responses
        code: ErrorCode = topic.partition_responses[0].error_code
        return code

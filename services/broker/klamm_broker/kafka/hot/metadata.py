"""Metadata, versions 0 to 13: https://kafka.apache.org/protocol#The_Messages_Metadata.

The code writes the answer by hand from the image, because a client of a large cluster asks for thousands of partitions.
A request that takes longer than a slice of the event loop's time is answered in several (`SlicedWork`). Its whole
answer is from the image with which it began.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import Final, NamedTuple

from klamm.errors import ErrorCode
from klamm.model import INTERNAL_TOPICS
from klamm_broker.handlers.metadata import MissingTopics, leader_error
from klamm_broker.handlers.topic_rights import is_listed, may_see
from klamm_broker.kafka.api import COLD_REQUEST_MAX_BYTES, ITEMS_MAX, ApiKey, Versions, api
from klamm_broker.kafka.codec.wire import AnswerWriter, MalformedRequestError
from klamm_broker.kafka.cold import authorized_operations
from klamm_broker.kafka.listener_metadata import ListenerBroker, ListenerMetadata
from klamm_broker.kafka.net.connection import Answer, Parts
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.topic_ids import TopicIds, unknown_id
from klamm_server.metadata.entities import NO_LEADER, PartitionImage, TopicImage
from klamm_server.runtime.sliced_work import SlicedWork
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.needs import CLUSTER_SHOWN, CREATE_TOPIC, DESCRIBE_TOPIC, TOPIC_SHOWN
from klamm_server.security.operations import Check

CREATION_WAIT_MS = 1_000
"""How long a Metadata request waits for a creation, in milliseconds. Clients send no timeout with it, and no further
request before its answer."""
_NO_ID = bytes(16)
_STEP: Final = 100
"""The number of names and partitions after which a slice may end."""


class _NamedTopics(NamedTuple):
    names: list[str]
    may_create: bool
    with_cluster_operations: bool
    with_topic_operations: bool
    ids: Mapping[str, bytes]
    """The ids of topics that the client named by id and may not see. Each key is `!` and the id in hex, which is no
    valid name of a topic. `names` has the key in place of the name, which the client must not learn."""


@api(
    ApiKey.METADATA,
    Versions(0, 13, flexible=9),
    Check(of_resources=(DESCRIBE_TOPIC, TOPIC_SHOWN, CREATE_TOPIC, CLUSTER_SHOWN)),
)
def metadata(
    request: Request, missing: MissingTopics, cluster: ListenerMetadata, topic_ids: TopicIds, slices: SlicedWork
) -> Answer | Waiting[Answer]:
    """Answers a Metadata request, immediately unless it is long or topics must be created first."""
    work = _first_answer(request, missing, cluster, topic_ids)
    answer = slices.begin(work)
    if answer is None or answer.being_created:
        return Waiting(_answer_async(request, missing, cluster, slices, answer or work))
    return answer.parts()


async def _answer_async(
    request: Request,
    missing: MissingTopics,
    cluster: ListenerMetadata,
    slices: SlicedWork,
    first: _Answer | Generator[None, None, _Answer],
) -> Answer:
    """Answers after the rest of the first answer is written, and after the missing topics were created. After the
    timeout, a missing topic gets LEADER_NOT_AVAILABLE, and the client asks again."""
    answer = first if isinstance(first, _Answer) else await slices.finish(first)
    if answer.being_created:
        await missing.created(answer.being_created, timeout_ms=CREATION_WAIT_MS)
        again = _Answer(request, missing, cluster, answer.named, answer.being_created)
        answer = await slices.finish(again.write())
    return answer.parts()


def _first_answer(
    request: Request, missing: MissingTopics, cluster: ListenerMetadata, topic_ids: TopicIds
) -> Generator[None, None, _Answer]:
    """Reads the request and writes the answer. Yields after each step."""
    named = yield from _read(request, cluster, topic_ids)
    return (yield from _Answer(request, missing, cluster, named, ()).write())


def _read(request: Request, cluster: ListenerMetadata, topic_ids: TopicIds) -> Generator[None, None, _NamedTopics]:
    """Reads the topics and options of the request. Raises MalformedRequestError."""
    if len(request.frame) > COLD_REQUEST_MAX_BYTES:
        raise MalformedRequestError(
            f"the METADATA request has {len(request.frame)} bytes; expected at most {COLD_REQUEST_MAX_BYTES}"
        )
    version = request.version
    reader = request.body()
    ids: dict[str, bytes] = {}

    def read_topic() -> str:
        topic_id = reader.uuid() if version >= 10 else _NO_ID
        name = reader.nullable_string() if version >= 10 else reader.string()
        reader.skip_tagged_fields()
        # As in Kafka, an id counts whatever the name is, because Java's client sends an empty name with it.
        if name is not None and topic_id == _NO_ID:
            return name
        found = topic_ids.name_of(topic_id)
        if may_see(found):
            return found
        # Use another key than the topic's name: the client may ask for the name too, without knowing that it is the
        # same.
        denied = f"!{topic_id.hex()}"
        ids[denied] = topic_id
        return denied

    count = reader.nullable_array_size()
    if count > ITEMS_MAX:
        raise MalformedRequestError(f"the METADATA request has {count} topics; expected at most {ITEMS_MAX}")
    names: list[str] = []
    for left in range(count, 0, -1):
        names.append(read_topic())
        if not left % _STEP:
            yield
    # Version 0 cannot send null. No topics mean all topics.
    is_all = count < 0 or (version == 0 and not count)
    may_create = version < 4 or reader.boolean()
    with_cluster_operations = 8 <= version <= 10 and reader.boolean()
    with_topic_operations = version >= 8 and reader.boolean()
    reader.skip_tagged_fields()
    # Bytes may follow, as in Kafka. librdkafka 2.16 asks for all topics with three bytes too many.
    if is_all:
        may_create = False
        for number, name in enumerate(sorted(cluster.image.topics_by_name), 1):
            if is_listed(name):
                names.append(name)
            if not number % _STEP:
                yield
    return _NamedTopics(list(dict.fromkeys(names)), may_create, with_cluster_operations, with_topic_operations, ids)


class _Answer:
    """The answer to one Metadata request, while it is written."""

    def __init__(
        self,
        request: Request,
        missing: MissingTopics,
        cluster: ListenerMetadata,
        named: _NamedTopics,
        being_created: Collection[str],
    ) -> None:
        self.named = named
        self.being_created = set(being_created)
        """The topics whose creation was requested, by this request or an earlier one."""
        self._version = request.version
        self._throttle_ms = request.throttle_ms
        self._writer = AnswerWriter(flexible=request.flexible)
        self._missing_topics = missing
        self._cluster = cluster
        self._brokers = cluster.listed()
        self._live = frozenset(broker.broker_id for broker in self._brokers if not broker.fenced)
        self._unreachable = cluster.unreachable()

    def parts(self) -> Parts:
        """Returns the bytes of the answer."""
        return self._writer.parts()

    def write(self) -> Generator[None, None, _Answer]:
        """Writes the answer. Yields after each step, and returns itself."""
        writer, image, named = self._writer, self._cluster.image, self.named
        if self._version >= 3:
            writer.int32(self._throttle_ms)
        writer.array(self._brokers, self._broker)
        if self._version >= 2:
            writer.nullable_string(image.cluster_id)
        if self._version >= 1:
            writer.int32(self._cluster.controller_id)
        writer.array_size(len(named.names))
        step = 0
        for name in named.names:
            topic = image.topic(name)
            step += 1 if topic is None else 1 + len(topic.partitions)
            if step >= _STEP:
                yield
                step = 0
            if name in named.ids or not may_see(name):
                self._denied(name)
            elif topic is None:
                self._missing(name, named.may_create)
            else:
                self._topic(topic)
        if 8 <= self._version <= 10:
            is_shown = named.with_cluster_operations and CLUSTER_SHOWN.shows()
            writer.int32(authorized_operations.of_cluster(is_shown))
        if self._version >= 13:
            writer.int16(ErrorCode.NONE)
        writer.tagged_fields()
        return self

    def _broker(self, broker: ListenerBroker) -> None:
        writer = self._writer
        writer.int32(broker.broker_id)
        writer.string(broker.host)
        writer.int32(broker.port)
        if self._version >= 1:
            writer.nullable_string(broker.rack or None)
        writer.tagged_fields()

    def _topic(self, topic: TopicImage) -> None:
        writer = self._writer
        writer.int16(ErrorCode.NONE)
        self._named(topic.name, topic.topic_id.bytes)
        writer.array(topic.partitions, self._partition)
        self._end_of_topic(topic.name, self.named.with_topic_operations)

    def _denied(self, name: str) -> None:
        """Writes a topic that the client may not see, with only the name or id that the client sent."""
        writer = self._writer
        writer.int16(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic_id = self.named.ids.get(name)
        if topic_id is None:
            self._named(name, _NO_ID)
        else:
            self._named(None, topic_id)
        writer.array_size(0)
        self._end_of_topic(name, False)

    def _missing(self, name: str, may_create: bool) -> None:
        writer = self._writer
        if (topic_id := unknown_id(name)) is not None:
            writer.int16(ErrorCode.UNKNOWN_TOPIC_ID)
            self._named(None, topic_id)
        else:
            writer.int16(self._error_of_missing(name, may_create))
            self._named(name, _NO_ID)
        writer.array_size(0)
        self._end_of_topic(name, topic_id is None and self.named.with_topic_operations)

    def _error_of_missing(self, name: str, may_create: bool) -> ErrorCode:
        if name in self.being_created:
            return ErrorCode.LEADER_NOT_AVAILABLE
        code = self._missing_topics.missing(name, may_create)
        if code is ErrorCode.LEADER_NOT_AVAILABLE:
            self.being_created.add(name)
        return code

    def _named(self, name: str | None, topic_id: bytes) -> None:
        writer = self._writer
        if self._version >= 12:
            writer.nullable_string(name)
        else:
            writer.string(name or "")
        if self._version >= 10:
            writer.uuid(topic_id)
        if self._version >= 1:
            writer.boolean(name in INTERNAL_TOPICS)

    def _end_of_topic(self, name: str, with_operations: bool) -> None:
        if self._version >= 8:
            self._writer.int32(authorized_operations.of_topic(name, with_operations))
        self._writer.tagged_fields()

    def _partition(self, partition: PartitionImage) -> None:
        writer, int32 = self._writer, self._writer.int32
        error = leader_error(partition.leader, self._unreachable)
        if self._version < 6 and error is ErrorCode.LISTENER_NOT_FOUND:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        writer.int16(error)
        int32(partition.partition)
        int32(NO_LEADER if error else partition.leader)
        if self._version >= 7:
            int32(partition.leader_epoch)
        writer.array(partition.replicas, int32)
        writer.array(partition.isr, int32)
        if self._version >= 5:
            writer.array([replica for replica in partition.replicas if replica not in self._live], int32)
        writer.tagged_fields()

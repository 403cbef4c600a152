"""A client's view of a topic: a register with an id, a number of partitions and a config. Histories of metadata
operations are checked against this model (linearizability.Model)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from klamm.errors import ErrorCode
from tests.support.linearizability import IMPOSSIBLE, Impossible, Operation

CONFIG: Final = "retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that exists."""

    topic_id: str | None
    """The topic's id. None if the operation that created the topic did not return. The first id that a client sees is
    then the topic's."""
    partition_count: int
    config: str | None = None
    """CONFIG, if it is set."""


@dataclass(frozen=True, slots=True)
class Create:
    partition_count: int


@dataclass(frozen=True, slots=True)
class Delete:
    pass


@dataclass(frozen=True, slots=True)
class Grow:
    total_count: int


@dataclass(frozen=True, slots=True)
class SetConfig:
    value: str | None
    """The value. None sets the config back to its default."""


@dataclass(frozen=True, slots=True)
class ReadTopic:
    pass


@dataclass(frozen=True, slots=True)
class ReadConfig:
    pass


Call = Create | Delete | Grow | SetConfig | ReadTopic | ReadConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that a client got."""

    code: ErrorCode = ErrorCode.NONE
    topic_id: str | None = None
    """The answer to Create and ReadTopic."""
    partition_count: int | None = None
    """The answer to ReadTopic."""
    config: str | None = None
    """The answer to ReadConfig."""


State = Topic | None


class TopicModel:
    """The model of one name. The `state` None means that there is no such topic. `history` is the history to check."""

    initial: State = None

    def __init__(self, history: Iterable[Operation]) -> None:
        self._acknowledged_ids = {
            each.result.topic_id
            for each in history
            if isinstance(each.call, Create) and isinstance(each.result, Answer) and each.result.topic_id is not None
        }

    def step(self, state: State, call: Call, result: Answer | None) -> State | Impossible:
        """Returns the state after the call, as `Model.step` does. A call with an unknown outcome takes effect here."""
        if isinstance(call, Create):
            return _create(state, call, result)
        code = result.code if result is not None else None
        if state is None:
            return state if code in (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) else IMPOSSIBLE
        if isinstance(call, Grow) and call.total_count <= state.partition_count:
            return state if code in (None, ErrorCode.INVALID_PARTITIONS) else IMPOSSIBLE
        if code not in (None, ErrorCode.NONE):
            return IMPOSSIBLE
        match call:
            case Delete():
                return None
            case Grow():
                return replace(state, partition_count=call.total_count)
            case SetConfig():
                return replace(state, config=call.value)
            case ReadTopic():
                return self._read_topic(state, result)
            case ReadConfig():
                return state if result is None or result.config == state.config else IMPOSSIBLE

    def _read_topic(self, state: Topic, result: Answer | None) -> State | Impossible:
        if result is None:
            return state
        if result.partition_count != state.partition_count:
            return IMPOSSIBLE
        if state.topic_id is None:
            return replace(state, topic_id=result.topic_id) if self._may_be_new(result.topic_id) else IMPOSSIBLE
        return state if state.topic_id == result.topic_id else IMPOSSIBLE

    def _may_be_new(self, topic_id: str | None) -> bool:
        """Returns True if a creation that did not return may have given this id, because no creation that returned gave
        it."""
        return topic_id not in self._acknowledged_ids


def _create(state: State, call: Create, result: Answer | None) -> State | Impossible:
    if state is not None:
        return state if result is None or result.code is ErrorCode.TOPIC_ALREADY_EXISTS else IMPOSSIBLE
    if result is not None and result.code is not ErrorCode.NONE:
        return IMPOSSIBLE
    return Topic(topic_id=result.topic_id if result is not None else None, partition_count=call.partition_count)

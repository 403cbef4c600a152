"""Decodes the scrubs that brokers describe."""

from __future__ import annotations

from klamm.admin.types.scrubs import DamagedSegment, DamageState, ScrubDescription
from klamm.model import TopicPartition
from klamm.wire.v1 import broker_pb2


def scrub(message: broker_pb2.DescribedScrub) -> ScrubDescription:
    return ScrubDescription(
        tp=TopicPartition(message.topic, message.partition),
        asked=message.asked,
        running=message.running,
        next_offset=message.next_offset,
        end_offset=message.end_offset,
        finished_ms=message.finished_ms,
        damages=tuple(
            DamagedSegment(
                path=damage.path,
                found_ms=damage.found_ms,
                state=_DAMAGE_STATES.get(damage.state, DamageState.UNREPAIRED),
                text=damage.text,
                lines=tuple(damage.lines),
            )
            for damage in message.damages
        ),
    )


_DAMAGE_STATES = {
    broker_pb2.DAMAGE_STATE_REPAIRED: DamageState.REPAIRED,
    broker_pb2.DAMAGE_STATE_DISMISSED: DamageState.DISMISSED,
}

"""The turn of a shard of groups, and the follow-up that logs a failed write."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass

from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.records.schemas import GroupRecord
from klamm_coordinator.runtime.event_context import EventContext

GroupContext = EventContext[GroupSettings, GroupRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFailure:
    """Logs `what` if the write fails. No request waits for the write."""

    what: str


def new_member_id(prefix: str, rng: random.Random) -> str:
    """Returns a new member id, `<prefix>-<random uuid>`. As in Kafka, the prefix is a client id or an instance id."""
    return f"{prefix}-{uuid.UUID(int=rng.getrandbits(128), version=4)}"

"""Charges callers for changes of topics, if `controller_mutation_rate` is set (KIP-599).

A creation costs the number of new partitions, and a deletion the number of the topic's partitions. A request without a
change costs nothing. As in Kafka, a request is accepted while quota is left, and the topics after the one that has used
it up are refused.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.acls import ANONYMOUS
from klamm.errors import ErrorCode
from klamm.model import INTERNAL_TOPICS
from klamm.wire.v1.controller_pb2 import NewPartitions, NewTopic
from klamm_controller.metadata.policy import TopicPolicy
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import Clock
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.quotas.mutation_quotas import MutationQuotas
from klamm_server.security.session import CALLER

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Mutations:
    """Creates a charge for each request that changes topics."""

    def __init__(
        self,
        quotas: MutationQuotas,
        policy: TopicPolicy,
        image: Callable[[], MetadataImage],
        clock: Clock,
        *,
        knows_callers: bool,
    ) -> None:
        """`knows_callers` is True if there is an authorizer. A caller without a session is then another server, and is
        not charged."""
        self._quotas = quotas
        self._policy = policy
        self._image = image
        self._clock = clock
        self._knows_callers = knows_callers

    def begin(self, client_id: str, *, validate_only: bool = False) -> Charge:
        """Returns the charge for the topics of one request. A request that only validates costs nothing."""
        image = self._image()
        self._quotas.apply(image.client_quotas)
        principal = None if validate_only else self._principal()
        user = None if principal is None else principal.partition(":")[2]
        return Charge(self._quotas, self._policy, image, self._clock.monotonic_ms(), user, client_id)

    def _principal(self) -> str | None:
        """Returns the principal to charge, or None for another server."""
        caller = CALLER.get()
        if caller is not None:
            return caller.principal
        return LOGGED_IN.get() or (None if self._knows_callers else ANONYMOUS)


class Charge:
    """Charges one caller for one request. Each `admits_...` returns True if the topic may be changed now, and then
    charges the caller for this change."""

    def __init__(
        self,
        quotas: MutationQuotas,
        policy: TopicPolicy,
        image: MetadataImage,
        now_ms: int,
        user: str | None,
        client_id: str,
    ) -> None:
        self._quotas = quotas
        self._policy = policy
        self._image = image
        self._now_ms = now_ms
        self._user = user
        self._client_id = client_id
        self.throttle_ms = 0
        """How long the client must wait before its next request, in milliseconds."""

    def admits_creation(self, topic: NewTopic) -> bool:
        if self._image.topic(topic.name) is not None:
            return True
        count = len(topic.assignments) or self._policy.partition_count(topic.name, topic.partition_count)
        return self._admits(topic.name, count)

    def admits_deletion(self, name: str) -> bool:
        return self._admits(name, self._partition_count(name))

    def admits_growth(self, wanted: NewPartitions) -> bool:
        known = self._partition_count(wanted.topic)
        return self._admits(wanted.topic, wanted.total_count - known if known else 0)

    def _partition_count(self, name: str) -> int:
        topic = self._image.topic(name)
        return 0 if topic is None else len(topic.partitions)

    def _admits(self, name: str, partitions: int) -> bool:
        if self._user is None or partitions <= 0 or name in INTERNAL_TOPICS:
            return True
        throttle_ms = self._quotas.admit(self._user, self._client_id, partitions, self._now_ms)
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        return not throttle_ms

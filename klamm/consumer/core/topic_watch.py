"""Matches a subscription's pattern with the cluster's topics, and waits for subscribed topics that do not exist yet.

This runs beside the polls, so that a poll does not wait longer for topics than its timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm.client_task import client_task
from klamm.cluster.client import KlammClient
from klamm.cluster.metadata import ClusterView
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.subscription import SubscriptionState, SubscriptionType
from klamm.errors import KlammError


class TopicWatch:
    """Watches the topics of one subscription. Calls `on_match_changed` when other topics match the pattern than before.
    Calls `on_failure` when there is an error for the next poll (`take_failure`)."""

    def __init__(
        self,
        client: KlammClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        on_match_changed: Callable[[], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._client = client
        self._config = config
        self._subscription = subscription
        self._on_match_changed = on_match_changed
        self._on_failure = on_failure
        self._failure: KlammError | None = None
        self._all_known = False
        """True after the metadata of all topics was received, which a pattern needs. The client then refreshes all
        topics."""
        self._asking: asyncio.Task[None] | None = None
        client.on_change(self._on_cluster_change)

    def pattern_changed(self) -> None:
        """Notes a new pattern, so that `watch` matches it with all topics."""
        self._all_known = False

    def watch(self) -> None:
        """Requests metadata until all needed topics are known: all topics for a pattern, otherwise subscribed topics
        that do not exist yet."""
        if self._asking is None and (self._needs_all() or self._missing()):
            self._asking = client_task(self._ask(), name="klamm-topics")

    def take_failure(self) -> KlammError | None:
        """Removes and returns the error of a topic that is denied to this client."""
        failure, self._failure = self._failure, None
        return failure

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _needs_all(self) -> bool:
        return self._subscription.type is SubscriptionType.PATTERN and not self._all_known

    def _missing(self) -> frozenset[str]:
        return self._subscription.topics - self._client.cluster.topics.keys()

    async def _ask(self) -> None:
        attempt = 0
        try:
            while (everything := self._needs_all()) or self._missing():
                try:
                    await self._client.refresh_metadata(None if everything else self._missing())
                    if everything:
                        self._learn_all()
                    self._fail(self._client.cluster.denial_of(self._missing()))
                except KlammError:
                    pass  # No server has answered yet. The next round asks again.
                attempt += 1
                await asyncio.sleep(self._client.backoff.delay_ms(attempt, self._client.rng) / 1000)
        finally:
            self._asking = None

    def _fail(self, error: KlammError | None) -> None:
        if error is not None:
            self._failure = error
            self._on_failure()

    def _learn_all(self) -> None:
        if self._needs_all():
            self._all_known = True
            self._match(self._client.cluster)

    def _match(self, cluster: ClusterView) -> None:
        hidden = self._config.exclude_internal_topics
        names = (topic.name for topic in cluster.topics.values() if not (hidden and topic.internal))
        if self._subscription.match_topics(names):
            self._on_match_changed()

    def _on_cluster_change(self, _: ClusterView, cluster: ClusterView) -> None:
        if self._subscription.type is SubscriptionType.PATTERN and self._all_known:
            self._match(cluster)

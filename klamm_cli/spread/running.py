"""Runs the phases of a spread, from the one in which the stored state is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm.model import TopicPartition
from klamm_cli.console.progress import ProgressBar
from klamm_cli.spread.copying import CopyProgress, copy_all
from klamm_cli.spread.facts import Names, SpreadFacts, marked
from klamm_cli.spread.gather import fence_copiers, foreign_partitions, gather, source_groups
from klamm_cli.spread.group_steps import GroupFacts, Step, is_waiting, sentence, step_of
from klamm_cli.spread.plan import Phase, cut_refusal, is_copied, next_phase, refusal
from klamm_cli.text.amounts import record_count

if TYPE_CHECKING:
    from klamm import Admin

_QUIET_S: Final = 3.0
"""How long the source must not grow before the cut."""
_LOOK_EVERY_S: Final = 1.0
_GroupIsNotEmpty = EXCEPTIONS[ErrorCode.NON_EMPTY_GROUP]
_TopicExistsError = EXCEPTIONS[ErrorCode.TOPIC_ALREADY_EXISTS]


class SpreadRefusedError(KlammError):
    """The topic cannot be spread in its state, or not now."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of the source, and what it has to do next."""

    facts: GroupFacts
    step: Step


@dataclass(slots=True)
class Spreading:
    """One run of the command. Its methods raise KlammError."""

    admin: Admin
    bootstrap: str
    names: Names
    partitions: int
    progress: CopyProgress = field(default_factory=CopyProgress)

    def look(self, *, stable_ms: int | None = None) -> SpreadFacts:
        """Returns the facts. Raises SpreadRefusedError if the topic cannot be spread, and UnstableOffsetCommitError if
        a transaction of a copier stays open for `stable_ms`."""
        facts = gather(self.admin, self.names, self.partitions, stable_ms=stable_ms)
        if (text := refusal(facts)) is not None:
            raise SpreadRefusedError(text)
        return facts

    def prepare(self) -> SpreadFacts:
        """Creates the target and stores the first offsets of the own group, unless an earlier run has done it."""
        fence_copiers(self.admin, self.names)
        facts = self.look()
        if next_phase(facts) is Phase.CREATE:
            self._create()
            facts = self.look()
        if next_phase(facts) is Phase.CLAIM:
            # One commit stores all of them, so that a killed run leaves all or none.
            offsets = marked(self.names.source, facts.source.starts, facts.mark)
            self.admin.alter_group_offsets(self.names.group_id, offsets)
            facts = self.look()
        return facts

    def copy(self, facts: SpreadFacts) -> SpreadFacts:
        """Copies until the copy is near the end of the source, or comes no closer. Returns the facts after that."""
        only_behind = False
        while True:
            left_before = facts.left
            self._copy_once(facts, only_behind=only_behind)
            facts, only_behind = self.look(), True
            if is_copied(facts, left_before):
                return facts

    def cut(self, facts: SpreadFacts) -> SpreadFacts:
        """Copies the rest of the source and stores the boundary. Raises SpreadRefusedError if the source grows."""
        while facts.left:
            self._copy_once(facts, only_behind=True)
            before, facts = facts, self.look()
            if facts.left >= before.left:
                break
        before = facts
        time.sleep(_QUIET_S)
        facts = self.look()
        if (text := cut_refusal(facts, before, foreign_partitions(self.admin, facts))) is not None:
            raise SpreadRefusedError(text)
        assert facts.target is not None
        boundary = marked(self.names.target, facts.target.ends, facts.mark)
        self.admin.alter_group_offsets(self.names.group_id, boundary)
        return self.look()

    def groups(self, facts: SpreadFacts) -> list[Group]:
        """Returns the groups of the source, and what each of them has to do next."""
        return [
            Group(source_group, step_of(source_group, facts.boundary))
            for source_group in source_groups(self.admin, facts)
        ]

    def move_groups(self, tell: Callable[[str], None], *, wait: bool) -> tuple[SpreadFacts, list[Group]]:
        """Moves each group that is ready. With `wait`, returns when no group is left to move. `tell` gets a sentence
        when there is news about a group."""
        told: dict[str, str] = {}
        while True:
            facts = self.look()
            groups = [self._moved(group, facts) for group in self.groups(facts)]
            for group in groups:
                text = sentence(group.facts, group.step, self.names.source, self.names.target)
                if wait and told.get(group.facts.group_id) != text:
                    tell(text)
                told[group.facts.group_id] = text
            if not wait or not any(is_waiting(group.step) for group in groups):
                return facts, groups
            time.sleep(_LOOK_EVERY_S)

    def _moved(self, group: Group, facts: SpreadFacts) -> Group:
        if group.step is not Step.MOVE:
            return group
        offsets: Mapping[TopicPartition, int] = {
            TopicPartition(self.names.target, number): offset for number, offset in facts.boundary.items()
        }
        try:
            self.admin.alter_group_offsets(group.facts.group_id, offsets)
        except _GroupIsNotEmpty:
            return Group(group.facts, Step.STOP)
        return Group(group.facts, Step.MOVED)

    def _create(self) -> None:
        from klamm import NewTopic
        from klamm.admin import ConfigResource, ConfigResourceType, ConfigSource

        described = self.admin.describe_topics([self.names.source])[self.names.source]
        resource = ConfigResource(ConfigResourceType.TOPIC, self.names.source)
        configs = {
            name: entry.value
            for name, entry in self.admin.describe_configs([resource])[resource].items()
            if entry.source is ConfigSource.DYNAMIC_TOPIC
        }
        replication_factor = len(described.partitions[0].target_replicas)
        topic = NewTopic(self.names.target, self.partitions, replication_factor, configs=configs)
        try:
            self.admin.create_topics([topic])
        except _TopicExistsError:
            return  # another client has just created it: `look` checks it

    def _copy_once(self, facts: SpreadFacts, *, only_behind: bool) -> None:
        began_s, before = time.monotonic(), self.progress.offsets
        records_before = self.progress.records
        with ProgressBar(f"copying {self.names.source}", facts.left) as bar:

            def show() -> None:
                records = self.progress.records - records_before
                rate = records / max(0.001, time.monotonic() - began_s)
                bar.show(self.progress.offsets - before, f"{record_count(records)}, {rate:,.0f}/s")

            copy_all(self.admin, self.bootstrap, facts, self.progress, show, only_behind=only_behind)

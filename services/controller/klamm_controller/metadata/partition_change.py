"""The only code that computes a partition's next state (Kafka's PartitionChangeBuilder; KIP-455, 841, 966).

The caller names the in-sync replicas and the reassignment that it wants. `partition_change` ends a reassignment once
all added replicas are in sync. It updates the eligible leader replicas, elects a leader, and returns a record of the
differences.

- A replica that leaves the in-sync set is *eligible* (ELR) while that set is below min.insync.replicas. The leader
  commits nothing then, so the replica still has every committed record. Once the set is large enough, no replica is
  eligible.
- The leader is in sync, or eligible if the in-sync set is empty. If no such replica can lead, the caller may name one
  whose log is the most complete (`unclean_recovery`); records may be lost then. An only replica always leads again,
  because no other has more.
- A replica that stopped uncleanly, or cannot reach its log, may have lost the end of its log. It is then neither in
  sync nor eligible.
- A replica that resigned is neither in sync nor leader while another in-sync replica has not resigned. This is as safe
  as if the replica had fallen behind, and no append waits for it. If all in-sync replicas have resigned, they stay in
  sync.
- `last_known_elr` names the replicas that were in sync or eligible until they may have lost records. It is kept until
  enough replicas are in sync again. A replica whose log directory is gone has nothing, so it is not kept (KIP-858).
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable

from klamm.wire.v1.metadata_pb2 import BrokerIds, MetadataRecord, PartitionChangeRecord
from klamm_controller.metadata.electorate import Electorate
from klamm_server.metadata.entities import NO_LEADER, PartitionImage, TopicImage

Brokers = tuple[int, ...]


class Election(enum.Enum):
    """The election that a change may hold, besides replacing a leader that cannot lead."""

    ONLINE = enum.auto()
    """Holds no other election."""
    PREFERRED = enum.auto()
    """Elects the first replica, if it can lead."""
    UNCLEAN = enum.auto()
    """Elects any replica that may lead, if no in-sync or eligible replica can."""


def partition_change(
    topic: TopicImage,
    before: PartitionImage,
    electorate: Electorate,
    *,
    election: Election = Election.ONLINE,
    unclean_leader: int = NO_LEADER,
    isr: Brokers | None = None,
    replicas: Brokers | None = None,
    adding: Brokers | None = None,
    removing: Brokers | None = None,
    offline: Brokers | None = None,
    resigned: Brokers | None = None,
    lost: Container[int] = (),
    gone: Container[int] = (),
    min_isr: int | None = None,
) -> MetadataRecord | None:
    """Returns the record that changes the partition to these sets, or None if nothing changes.

    A set that is None stays as it is. `unclean_leader` leads if neither an in-sync nor an eligible replica can. `lost`
    names replicas that may have lost their last records, and `gone` those of them that may have lost everything.
    `min_isr` is the minimum that the leader uses, if it may differ from the controller's."""
    target = _Target(before, electorate, gone)
    target.assign(replicas, adding, removing, offline, resigned)
    target.set_isr(before.isr if isr is None else isr, lost)
    target.complete_reassignment()
    in_force = electorate.min_isr(topic.name, len(target.replicas))
    target.set_elr(in_force if min_isr is None else min(min_isr, in_force), lost)
    target.elect(election, unclean_leader)
    return target.record(topic)


class _Target:
    """The computation of a partition's next state. The methods are called once each, in order."""

    def __init__(self, before: PartitionImage, electorate: Electorate, gone: Container[int]) -> None:
        self._before = before
        self._gone = gone
        self._active = electorate.active
        self.replicas = before.replicas
        self._isr: Brokers = before.isr
        self._elr: Brokers = before.elr
        self._leader = before.leader
        self._adding = before.adding_replicas
        self._removing = before.removing_replicas
        self._offline = before.offline_replicas
        self._unclean = False
        self._resigned = before.resigned_replicas
        self._min_isr = 0

    def assign(
        self,
        replicas: Brokers | None,
        adding: Brokers | None,
        removing: Brokers | None,
        offline: Brokers | None,
        resigned: Brokers | None,
    ) -> None:
        if replicas is not None:
            self.replicas = replicas
        if adding is not None:
            self._adding = adding
        if removing is not None:
            self._removing = removing
        if offline is not None:
            self._offline = offline
        if resigned is not None:
            self._resigned = resigned

    def set_isr(self, isr: Brokers, lost: Container[int]) -> None:
        """Sets the in-sync replicas. Removes brokers that may not lead (KIP-841), and resigned ones while others are in
        sync."""
        able = tuple(broker_id for broker_id in isr if self._may_lead(broker_id) and broker_id not in lost)
        self._isr = _without(able, self._resigned) or able

    def complete_reassignment(self) -> None:
        """Ends the reassignment once all added replicas are in sync, and removes the others.

        Another replica that stays may be out of sync, so that a dead broker does not block the reassignment. The
        in-sync set cannot shrink by that if the reassignment adds as many replicas as it removes. Otherwise, all
        replicas that stay must be in sync (KAFKA-19975)."""
        if not self._adding and not self._removing:
            return
        staying = _without(self.replicas, self._removing)
        awaited = self._adding if len(self._adding) >= len(self._removing) else staying
        if awaited and set(awaited) <= set(self._isr):
            self.replicas = staying
            self._isr = _without(self._isr, self._removing)
            self._adding = self._removing = ()

    def set_elr(self, min_isr: int, lost: Container[int]) -> None:
        self._min_isr = min_isr
        self._offline = tuple(broker_id for broker_id in self._offline if broker_id in self.replicas)
        self._resigned = tuple(broker_id for broker_id in self._resigned if broker_id in self.replicas)
        if len(self._isr) >= min_isr:
            self._elr = ()
            return
        candidates = dict.fromkeys((*self._before.elr, *self._before.isr))
        self._elr = tuple(
            broker_id
            for broker_id in candidates
            if broker_id in self.replicas
            and broker_id not in self._isr
            and broker_id not in lost
            and broker_id not in self._offline
        )

    def elect(self, election: Election, unclean_leader: int) -> None:
        self._leader = self._elected(election, unclean_leader)
        if self._leader == NO_LEADER or self._leader in self._isr:
            return
        self._unclean = self._leader not in self._elr
        if self._leader in self._elr and self._min_isr > 1:
            self._elr = _without(self._elr, (self._leader,))
        else:
            # Either the leader alone is enough in sync, or it may lack records that the others have. Then they may no
            # longer lead.
            self._elr = ()
        self._isr = (self._leader,)

    def _elected(self, election: Election, unclean_leader: int) -> int:
        preferred = self.replicas[:1] if election is Election.PREFERRED else ()
        clean = self._isr or self._elr
        wanted = (*preferred, self._before.leader, *self.replicas)
        for broker_id in sorted(wanted, key=self._has_resigned):
            if broker_id in clean and self._may_lead(broker_id):
                return broker_id
        if self._may_lead(unclean_leader):
            return unclean_leader
        if not clean and self._is_only_replica_back():
            return self.replicas[0]
        if election is Election.UNCLEAN:
            return next(filter(self._may_lead, sorted(self.replicas, key=self._has_resigned)), NO_LEADER)
        return NO_LEADER

    def _is_only_replica_back(self) -> bool:
        only = self.replicas[0]
        return len(self.replicas) == 1 and self._before.last_known_elr == (only,) and self._may_lead(only)

    def _has_resigned(self, broker_id: int) -> bool:
        return broker_id in self._resigned

    def _may_lead(self, broker_id: int) -> bool:
        return broker_id in self._active and broker_id in self.replicas and broker_id not in self._offline

    def _last_known(self) -> Brokers:
        """Returns the replicas that were in sync or eligible until they may have lost records.

        They are kept until enough replicas are in sync again, or until an unclean election settles what is lost. While
        the partition has no leader, the last leader is the first of them. A broker that is no replica any more deletes
        its log and would come back with nothing, so it is left out."""
        before = self._before
        if self._unclean or len(self._isr) >= self._min_isr:
            return ()
        last_leader = before.leader if before.leader != NO_LEADER else next(iter(before.last_known_elr), NO_LEADER)
        known = dict.fromkeys((last_leader, *before.last_known_elr, *before.isr, *before.elr))
        if self._leader == NO_LEADER:
            still_eligible = _without(self._elr, (last_leader,))
        else:
            still_eligible = self._elr
        return tuple(
            broker_id
            for broker_id in known
            if broker_id in self.replicas
            and broker_id not in self._isr
            and broker_id not in still_eligible
            and broker_id not in self._gone
        )

    def record(self, topic: TopicImage) -> MetadataRecord | None:
        before = self._before
        change = PartitionChangeRecord(topic_id=topic.topic_id.bytes, partition=before.partition)
        # A broker that leaves the replicas must not follow the leader under the same epoch.
        if self._leader != before.leader or not set(before.replicas) <= set(self.replicas):
            change.leader = self._leader
            change.unclean = self._unclean
        _set(change.replicas, before.replicas, self.replicas)
        _set(change.isr, before.isr, self._isr)
        _set(change.elr, before.elr, self._elr)
        _set(change.last_known_elr, before.last_known_elr, self._last_known())
        _set(change.adding_replicas, before.adding_replicas, self._adding)
        _set(change.removing_replicas, before.removing_replicas, self._removing)
        _set(change.offline_replicas, before.offline_replicas, self._offline)
        _set(change.resigned_replicas, before.resigned_replicas, self._resigned)
        return MetadataRecord(partition_change=change) if any(map(change.HasField, _CHANGEABLE)) else None


_CHANGEABLE = (
    "leader",
    "replicas",
    "isr",
    "elr",
    "last_known_elr",
    "adding_replicas",
    "removing_replicas",
    "offline_replicas",
    "resigned_replicas",
)


def _without(brokers: Brokers, gone: Iterable[int]) -> Brokers:
    return tuple(broker_id for broker_id in brokers if broker_id not in gone)


def _set(field: BrokerIds, before: Brokers, after: Brokers) -> None:
    if before != after:
        field.SetInParent()
        field.broker_ids.extend(after)

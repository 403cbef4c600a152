"""Elections that an operator requests (ElectLeaders, KIP-183 and KIP-460), and the balance of preferred leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    ELECTION_TYPE_PREFERRED,
    ELECTION_TYPE_UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    NamedPartitionResult,
)
from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.electorate import Electorate
from klamm_controller.metadata.partition_change import Election, partition_change
from klamm_controller.metadata.replica_logs import ReplicaLogs, most_complete
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT, PARTITIONS_PER_EVENT, Change, Sweep, all_partitions
from klamm_server.metadata.entities import NO_LEADER, PartitionImage, TopicImage
from klamm_server.metadata.image import MetadataImage

_ELECTIONS = {ELECTION_TYPE_PREFERRED: Election.PREFERRED, ELECTION_TYPE_UNCLEAN: Election.UNCLEAN}


class LeaderElections:
    """An ElectLeaders request, handled in parts. An unclean election elects the replica with the most complete log in
    `logs`."""

    def __init__(self, request: ElectLeadersRequest, logs: ReplicaLogs) -> None:
        self._request = request
        self._logs = logs
        self._partitions: Iterator[tuple[str, int]] | None = None
        self._is_done = False

    def parts(self) -> Iterator[Callable[[MetadataImage], Decision[ElectLeadersResponse]]]:
        """Yields the handlers to run, one after the other. Yields at least one."""
        while not self._is_done:
            yield self.next_part

    def next_part(self, image: MetadataImage, changes_max: int = CHANGES_PER_EVENT) -> Decision[ElectLeadersResponse]:
        """Elects leaders of the next partitions, with at most `changes_max` changes."""
        election = _ELECTIONS.get(self._request.election_type)
        if election is None:
            self._is_done = True
            return Decision(reply=ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
        if self._partitions is None:
            self._partitions = self._requested(image)
        electorate = Electorate(image)
        records: list[MetadataRecord] = []
        results = []
        looked_at = 0
        for topic, number in islice(self._partitions, max(PARTITIONS_PER_EVENT, changes_max)):
            looked_at += 1
            result = NamedPartitionResult(topic=topic, partition=number)
            try:
                records.append(self._elect(topic, number, election, image, electorate))
            except Refusal as refusal:
                if refusal.code is ErrorCode.ELECTION_NOT_NEEDED and not self._request.partitions:
                    continue
                result.error_code, result.error_message = refusal.code, refusal.message
            results.append(result)
            if len(records) == changes_max:
                break
        else:
            self._is_done = looked_at < max(PARTITIONS_PER_EVENT, changes_max)
        return Decision(records=tuple(records), reply=ElectLeadersResponse(results=results))

    def _requested(self, image: MetadataImage) -> Iterator[tuple[str, int]]:
        """Returns (topic name, partition number) of each requested partition, each once. If the request names none,
        returns those of all partitions."""
        if self._request.partitions:
            return iter(dict.fromkeys((partition.topic, partition.partition) for partition in self._request.partitions))
        return ((image.topics_by_id[topic_id].name, number) for topic_id, number in all_partitions(image))

    def _elect(
        self, name: str, number: int, election: Election, image: MetadataImage, electorate: Electorate
    ) -> MetadataRecord:
        topic, partition = image.topic(name), image.partition(name, number)
        if topic is None or partition is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {name}-{number} does not exist")
        preferred = partition.replicas[0]
        if election is Election.PREFERRED:
            not_needed, code = partition.leader == preferred, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        else:
            not_needed, code = partition.leader != NO_LEADER, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if not_needed:
            raise Refusal(
                ErrorCode.ELECTION_NOT_NEEDED, f"partition {name}-{number} is led by broker {partition.leader}"
            )
        leader = NO_LEADER
        if election is Election.UNCLEAN:
            live = electorate.live_replicas(partition)
            logs = self._logs.current((topic.topic_id, number), partition, image)
            leader = most_complete(partition, electorate, {one: log for one, log in logs.items() if one in live})
        record = partition_change(topic, partition, electorate, election=election, unclean_leader=leader)
        elected = record.partition_change.leader if record is not None else NO_LEADER
        led = record is not None and record.partition_change.HasField("leader") and elected != NO_LEADER
        if record is None or not led or (election is Election.PREFERRED and elected != preferred):
            raise Refusal(
                code,
                f"partition {name}-{number}: no eligible replica among {list(partition.replicas)}, of which"
                f" {list(partition.isr)} are in sync; the active brokers are {sorted(electorate.active)}",
            )
        return record


def unbalanced_brokers(image: MetadataImage, *, percentage: int) -> list[int]:
    """Returns the active brokers that do not lead more than `percentage` of the partitions of which they are the
    preferred leader."""
    active = Electorate(image).active
    tallies = ((broker_id, image.index.tally(broker_id)) for broker_id in sorted(active))
    return [broker_id for broker_id, tally in tallies if 100 * tally.away > percentage * tally.preferred]


def leaders_home(image: MetadataImage, broker_id: int) -> Sweep:
    """Returns a sweep that makes a broker the leader of the partitions whose preferred leader it is, if it is in
    sync."""
    return Sweep(f"leaders back to broker {broker_id}", image.index.hosted_by(broker_id), _to_preferred(broker_id))


def _to_preferred(broker_id: int) -> Change:
    def change(topic: TopicImage, partition: PartitionImage, electorate: Electorate) -> MetadataRecord | None:
        if partition.replicas[0] != broker_id or partition.leader == broker_id or broker_id not in partition.isr:
            return None
        return partition_change(topic, partition, electorate, election=Election.PREFERRED)

    return change

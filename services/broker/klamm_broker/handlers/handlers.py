"""The handlers that answer the requests of both protocols, gRPC and Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from klamm_broker.handlers.delete_records import DeleteRecordsHandler
from klamm_broker.handlers.describe_producers import DescribeProducersHandler
from klamm_broker.handlers.describe_unread import DescribeUnreadHandler
from klamm_broker.handlers.fetch import FetchHandler
from klamm_broker.handlers.find_coordinator import CoordinatorFinder
from klamm_broker.handlers.init_producer_id import InitProducerIdHandler
from klamm_broker.handlers.list_offsets import ListOffsetsHandler
from klamm_broker.handlers.log_dirs import LogDirsHandler
from klamm_broker.handlers.metadata import MissingTopics
from klamm_broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from klamm_broker.handlers.produce import ProduceHandler
from klamm_broker.handlers.write_txn_markers import WriteTxnMarkersHandler


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """All handlers of a broker, one for each family of calls."""

    produce: ProduceHandler
    fetch: FetchHandler
    list_offsets: ListOffsetsHandler
    delete_records: DeleteRecordsHandler
    offset_for_leader_epoch: OffsetForLeaderEpochHandler
    log_dirs: LogDirsHandler
    missing_topics: MissingTopics
    coordinator_finder: CoordinatorFinder
    init_producer_id: InitProducerIdHandler
    write_txn_markers: WriteTxnMarkersHandler
    describe_producers: DescribeProducersHandler
    describe_unread: DescribeUnreadHandler

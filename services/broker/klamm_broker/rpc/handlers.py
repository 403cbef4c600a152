"""What answers the requests of both doors, gRPC's and Kafka's."""

from __future__ import annotations

from dataclasses import dataclass

from klamm_broker.rpc.delete_records import DeleteRecordsRpc
from klamm_broker.rpc.describe_producers import DescribeProducersRpc
from klamm_broker.rpc.fetch import FetchRpc
from klamm_broker.rpc.find_coordinator import FindCoordinatorRpc
from klamm_broker.rpc.init_producer_id import InitProducerIdRpc
from klamm_broker.rpc.list_offsets import ListOffsetsRpc
from klamm_broker.rpc.log_dirs import LogDirsRpc
from klamm_broker.rpc.metadata import MetadataRpc
from klamm_broker.rpc.offset_for_leader_epoch import OffsetForLeaderEpochRpc
from klamm_broker.rpc.produce import ProduceRpc
from klamm_broker.rpc.scrubs import ScrubsRpc
from klamm_broker.rpc.write_txn_markers import WriteTxnMarkersRpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """One for each family of calls."""

    produce: ProduceRpc
    fetch: FetchRpc
    list_offsets: ListOffsetsRpc
    delete_records: DeleteRecordsRpc
    offset_for_leader_epoch: OffsetForLeaderEpochRpc
    log_dirs: LogDirsRpc
    scrubs: ScrubsRpc
    metadata: MetadataRpc
    find_coordinator: FindCoordinatorRpc
    init_producer_id: InitProducerIdRpc
    write_txn_markers: WriteTxnMarkersRpc
    describe_producers: DescribeProducersRpc

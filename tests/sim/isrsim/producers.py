"""An idempotent producer with up to five records in flight.

It sends each record again until it gets the acknowledgement. It asks a broker that believes it is the leader, as a
client would with metadata of any age, and begins with the oldest record each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.errors import ErrorCode
from tests.support.violation import require

if TYPE_CHECKING:
    from tests.sim.isrsim.broker import SimBroker
    from tests.sim.isrsim.cluster import Cluster

IN_FLIGHT_MAX = 5
VALUES_PER_PRODUCER = 10**9


class SimProducer:
    """Sends the values `first_value`, `first_value + 1` ... under the sequences 0, 1 ..."""

    def __init__(self, producer_id: int, cluster: Cluster) -> None:
        self.producer_id = producer_id
        self._cluster = cluster
        self._next_sequence = 0
        self.unacknowledged: dict[int, None] = {}

    def value_of(self, sequence: int) -> int:
        return self.producer_id * VALUES_PER_PRODUCER + sequence

    def send(self, leaders: list[SimBroker]) -> None:
        """Sends one more record, if not too many are unacknowledged, and the unacknowledged ones again."""
        oldest = next(iter(self.unacknowledged), self._next_sequence)
        if self._next_sequence - oldest < IN_FLIGHT_MAX:
            self.unacknowledged[self._next_sequence] = None
            self._next_sequence += 1
        for broker in leaders:
            broker.receive(None, self._send_all, broker)

    def _send_all(self, broker: SimBroker) -> None:
        oldest = next(iter(self.unacknowledged), None)
        for sequence in tuple(self.unacknowledged):
            code = broker.produce((self.producer_id, sequence), self.value_of(sequence))
            if code is not ErrorCode.NONE:
                is_gap = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._cluster.leads(broker)
                require(
                    not is_gap or sequence != oldest,
                    f"sequence: broker {broker.broker_id} refuses {sequence} of producer {self.producer_id}, though all"
                    " before it are acknowledged",
                )
                return

    def on_acknowledged(self, sequence: int) -> None:
        self.unacknowledged.pop(sequence, None)

"""The Raft service: receives messages and introductions from the other controllers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from klamm.errors import ErrorCode
from klamm.ordered_set import OrderedSet
from klamm.wire.calls import CallContext
from klamm.wire.v1.raft_pb2 import IntroduceRequest, IntroduceResponse, RaftEnvelope, RaftExchangeResponse
from klamm_controller.io.raft_codec import check_address, decode, decode_address, decode_key, encode_key
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import AttachRequest, Message, ReplicaKey
from klamm_server.net.listeners import Listener
from klamm_server.net.listeners import decode as decode_listeners

log = logging.getLogger(__name__)


class RaftRpcs:
    """Answers Exchange and Introduce.

    `receive` is called with every message; the messages of one sender keep their order. `learn` is called with the
    addresses of other replicas. `voter_ids` are the node ids of controller.quorum.voters."""

    def __init__(
        self,
        me: ReplicaKey,
        cluster_id: str,
        *,
        voter_ids: Sequence[int],
        receive: Callable[[Message], None],
        learn: Callable[[ReplicaKey, str, Sequence[Listener]], None],
    ) -> None:
        self.bootstrap_voters: VoterSet | None = None
        """The voters with which the log begins, or None if the log has not begun."""
        self._me = me
        self._cluster_id = cluster_id
        self._voter_ids = sorted(voter_ids)
        self._receive = receive
        self._learn = learn
        self._streams: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._former_keys: set[ReplicaKey] = set()
        self._stopped = False

    async def exchange(self, envelopes: AsyncIterator[RaftEnvelope], context: CallContext) -> RaftExchangeResponse:
        """Receives messages until the sender ends the stream or this controller stops. Raises
        InconsistentClusterIdError or MalformedMessageError."""
        if self._stopped:
            return RaftExchangeResponse()
        reading = asyncio.create_task(self._read(envelopes), name="raft-exchange")
        self._streams.add(reading)
        try:
            await reading
        except asyncio.CancelledError:
            # `stop` cancels only the task that reads. Cancelling the handler itself would leave the call open.
            if not self._stopped:
                raise
        finally:
            self._streams.discard(reading)
        return RaftExchangeResponse()

    async def introduce(self, request: IntroduceRequest, context: CallContext) -> IntroduceResponse:
        """Learns the sender's address, and answers with this controller's key and the voters with which its log begins.
        Refuses a sender of another cluster, or one that lists other voters. Raises MalformedMessageError."""
        if request.cluster_id != self._cluster_id:
            return _refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, self._other_cluster(request.cluster_id))
        has_begun = self.bootstrap_voters is not None
        if not has_begun and request.voter_ids and sorted(request.voter_ids) != self._voter_ids:
            return _refusal(
                ErrorCode.INCONSISTENT_VOTER_SET,
                f"controller.quorum.voters names {self._voter_ids} here, but the sender's names"
                f" {sorted(request.voter_ids)}",
            )
        key = decode_key(request.replica)
        if request.address and key != self._me:
            self._learn(key, check_address(request.address), decode_listeners(request.listeners))
        voters = b"" if self.bootstrap_voters is None else self.bootstrap_voters.to_bytes()
        return IntroduceResponse(replica=encode_key(self._me), voters=voters)

    def stop(self) -> None:
        """Ends all open and future streams, because their senders would otherwise keep them open for ever."""
        self._stopped = True
        for reading in self._streams:
            reading.cancel()

    async def _read(self, envelopes: AsyncIterator[RaftEnvelope]) -> None:
        async for envelope in envelopes:
            self._receive_envelope(envelope)

    def _receive_envelope(self, envelope: RaftEnvelope) -> None:
        if envelope.cluster_id != self._cluster_id:
            raise ErrorCode.INCONSISTENT_CLUSTER_ID.exception(self._other_cluster(envelope.cluster_id))
        for where in envelope.addresses:
            key, address, listeners = decode_address(where)
            if key != self._me:
                self._learn(key, address, listeners)
        for encoded in envelope.messages:
            message = decode(encoded)
            self._receive(message)
            self._log_lost_directory(message)

    def _log_lost_directory(self, message: Message) -> None:
        """Logs a warning when the sender takes this node's former directory for a voter, once for each directory."""
        key = message.receiver
        is_former = key != self._me and key.node_id == self._me.node_id and not isinstance(message, AttachRequest)
        if is_former and key not in self._former_keys:
            self._former_keys.add(key)
            log.warning("the voters know a former directory of this controller: %s", lost_directory(self._me, key))

    def _other_cluster(self, cluster_id: str) -> str:
        return f"the receiver belongs to cluster {self._cluster_id}, but the sender to {cluster_id}"


def lost_directory(me: ReplicaKey, former: ReplicaKey) -> str:
    """Returns the log message that tells an operator how to replace the lost directory of a voter."""
    return (
        f"controller {me.node_id} is a voter with the directory {former.directory_id or '(without id)'}, but this"
        " one is"
        f" {me.directory_id}, so the controller is only an observer. If the other directory is lost, run"
        f" 'klamm cluster remove-controller --controller-id {me.node_id}', then 'klamm cluster add-controller"
        f" --controller-id {me.node_id}'"
    )


def _refusal(code: ErrorCode, message: str) -> IntroduceResponse:
    return IntroduceResponse(error_code=code, error_message=message)

"""Makes a failing run short. It replays fewer and fewer of the run's decisions, as long as the same rule breaks.

The replay has no clock and no faults of its own. The network is the set of all messages that were ever sent. Any of
them may arrive whenever a decision requires it. Impossible decisions (an unsent message, a node that is down) are
skipped. Leaving out one decision therefore does not shift all the others, as it would if the seed's chances were drawn
again. Delta debugging then ends at some tens of decisions, which a reader can follow. Violations of liveness have no
short form.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from klamm_controller.raft.events import (
    AddVoter,
    DeadlinePassed,
    LogPersisted,
    Propose,
    Read,
    RemoveVoter,
    SnapshotChunkLoaded,
    SnapshotSaved,
    TransferLeadership,
    UpdateVoter,
)
from klamm_controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    Message,
    SnapshotChunkRequest,
    SnapshotChunkResponse,
    VoteRequest,
    VoteResponse,
)
from tests.sim.kit.world import World
from tests.sim.raftsim.cluster import Cluster
from tests.sim.raftsim.decisions import Crashed, Decision, Loaded, Started, Stepped, Synced, Wiped
from tests.sim.raftsim.options import Options
from tests.sim.raftsim.replica import Replica


def kind_of(error: BaseException) -> str:
    """Returns the rule that broke. A violation begins with its name. Other errors are named by their place."""
    text = str(error)
    if type(error).__name__ == "Violation":
        return text.partition(":")[0]
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"{type(error).__name__} at {traceback.tb_frame.f_code.co_qualname if traceback else ''}"


def shrink(seed: int, decisions: Sequence[Decision], kind: str, budget_s: float) -> list[Decision]:
    """The fewest decisions found that break the same rule (ddmin, until no more can go or the CPU time is over)."""
    kept = list(decisions)
    if replay(seed, kept) != kind:
        return kept
    end_s = time.process_time() + budget_s
    size = max(1, len(kept) // 2)
    while size:
        position, removed = 0, False
        while position < len(kept) and time.process_time() < end_s:
            fewer = kept[:position] + kept[position + size :]
            if replay(seed, fewer) == kind:
                kept, removed = fewer, True
            else:
                position += size
        if time.process_time() >= end_s:
            break
        size = size // 2 if size > 1 or not removed else 1
    return kept


def replay(seed: int, decisions: Sequence[Decision], trace: deque[str] | None = None) -> str | None:
    """Replays the decisions, and returns the rule that breaks, or None."""
    try:
        run = _Replay(seed, trace)
        for decision in decisions:
            run.make(decision)
    except Exception as error:  # noqa: BLE001 - a mutated core may break anywhere; which way is the result
        return kind_of(error)
    return None


class _StandingWorld(World):
    """A world in which nothing happens by itself."""

    def after(self, delay_us: int, action: Callable[..., None], *args: Any) -> None:
        pass


class _Bag:
    """A network that keeps everything, and finds again what a message of the recorded run has become in this one.

    Without some decision before it, a message differs in its term, its high watermark or its round of reads; the
    newest one between the same two that says the same otherwise is taken for it."""

    def __init__(self) -> None:
        self._sent: dict[tuple[object, ...], Message] = {}

    def send(self, message: Message) -> None:
        self._sent[_gist(message)] = message

    def like(self, message: Message) -> Message | None:
        """The counterpart of a recorded message, if it was sent."""
        return self._sent.get(_gist(message))


def _gist(message: Message) -> tuple[object, ...]:
    route = (type(message), message.sender, message.receiver)
    match message:
        case AppendRequest():
            return (*route, message.base_index, len(message.entries))
        case AppendResponse():
            return (*route, message.rejected, message.end_index)
        case SnapshotChunkRequest():
            return (*route, message.snapshot.end_index, message.position)
        case SnapshotChunkResponse():
            return (*route, message.snapshot.end_index, message.position)
        case VoteRequest():
            return (*route, message.pre_vote)
        case VoteResponse():
            return (*route, message.pre_vote, message.granted)
        case _:
            return route


class _Replay:
    def __init__(self, seed: int, trace: deque[str] | None) -> None:
        self._world = _StandingWorld(seed)
        self._cluster = Cluster(self._world, Options.draw(random.Random(seed)), trace)
        self._bag = _Bag()
        self._cluster.network = self._bag  # type: ignore[assignment]

    def make(self, decision: Decision) -> None:
        self._world.now_us = decision.now_us
        replica = self._cluster.replicas[decision.node_id]
        match decision:
            case Stepped():
                if replica.node is not None:
                    self._step(replica, decision)
            case Synced():
                replica.disk.finish(decision.write_count)
            case Loaded():
                replica.load_chunk(decision.load)
            case Started():
                if replica.node is None:
                    replica.start(decision.rng_seed)
            case Crashed():
                replica.crash(decision.kept_count)
            case Wiped():
                self._cluster.wipe(decision.node_id)
            case _:
                assert_never(decision)

    def _step(self, replica: Replica, decision: Stepped) -> None:
        event = decision.event
        match event:
            case LogPersisted():
                # The ids of the other run are not valid here. Use the id of the writes that are durable in this run.
                if replica.disk.durable_persist_id:
                    replica.step(LogPersisted(persist_id=replica.disk.durable_persist_id))
            case SnapshotSaved():
                is_applied = replica.applied_end_index >= event.snapshot.end_index
                if is_applied and replica.disk.durable.snapshot == event.snapshot:
                    replica.step(event)
            case SnapshotChunkLoaded():
                pass
            case Read():
                self._cluster.on_read_asked(event.request_id)
                replica.step(event)
            case DeadlinePassed() | Propose() | AddVoter() | RemoveVoter() | UpdateVoter() | TransferLeadership():
                replica.step(event)
            case _:
                self._deliver(replica, event)

    def _deliver(self, replica: Replica, message: Message) -> None:
        counterpart = self._bag.like(message)
        if counterpart is not None:
            replica.step(counterpart)

"""The nodes that have shown a sign of life lately: soft state, never in the log.

A node that is silent for the session time-out is expired once. After a start or a change of leader the controller
grants everybody a new session, so only silence that this controller has witnessed fences anyone.

The heap holds one entry for each known node, with a deadline that may be out of date; it is brought up to date when it
comes to the top, so a heartbeat costs one write to a dict.
"""

from __future__ import annotations

import heapq


class Sessions:
    """Deadlines of nodes of one kind, by id.

    Invariant: each id of `_deadline_ms` has exactly one heap entry, not later than its deadline. Ids that were
    removed leave theirs behind until it comes to the top."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._deadline_ms: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._in_heap: set[int] = set()

    def touch(self, node_id: int, now_ms: int) -> None:
        """A sign of life, or a new session."""
        self._deadline_ms[node_id] = now_ms + self._timeout_ms
        if node_id not in self._in_heap:
            self._in_heap.add(node_id)
            heapq.heappush(self._heap, (now_ms + self._timeout_ms, node_id))

    def remove(self, node_id: int) -> None:
        """Ends the session without waiting for its time-out."""
        self._deadline_ms.pop(node_id, None)

    def is_live(self, node_id: int, now_ms: int) -> bool:
        """Whether the session has not run out."""
        return self._deadline_ms.get(node_id, now_ms) > now_ms

    def deadline_ms(self, node_id: int) -> int | None:
        """When the session runs out; each sign of life changes it."""
        return self._deadline_ms.get(node_id)

    def renew(self, now_ms: int) -> None:
        """A new session for everybody who has one."""
        for node_id in self._deadline_ms:
            self._deadline_ms[node_id] = now_ms + self._timeout_ms

    def expire(self, now_ms: int) -> list[int]:
        """Ends the sessions that have run out by `now_ms`, and names their nodes in order of deadline."""
        expired = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, node_id = heapq.heappop(self._heap)
            self._in_heap.discard(node_id)
            deadline_ms = self._deadline_ms.get(node_id)
            if deadline_ms is None:
                continue
            if deadline_ms <= now_ms:
                del self._deadline_ms[node_id]
                expired.append(node_id)
            else:
                self._in_heap.add(node_id)
                heapq.heappush(self._heap, (deadline_ms, node_id))
        return expired

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` again; it may then find nothing."""
        return self._heap[0][0] if self._heap else None

    def check_invariants(self) -> None:
        """One heap entry per known node, none too late."""
        in_heap = [node_id for _, node_id in self._heap]
        assert len(in_heap) == len(set(in_heap)), in_heap
        assert set(in_heap) == self._in_heap, (in_heap, self._in_heap)
        for deadline_ms, node_id in self._heap:
            assert deadline_ms <= self._deadline_ms.get(node_id, deadline_ms), (deadline_ms, node_id)
        assert self._deadline_ms.keys() <= self._in_heap, (self._deadline_ms, self._in_heap)

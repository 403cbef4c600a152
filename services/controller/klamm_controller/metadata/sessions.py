"""The sessions of the nodes that have sent a heartbeat lately. They are kept only in memory, never in the log.

The session of a node that sends no heartbeat within the session time-out expires once. After a start or a change of
leader, the controller grants every node a new session. So it fences a node only for silence that it has observed
itself.

The heap holds one entry for each known node, with a deadline that may be out of date. An entry is updated only when it
comes to the top, so a heartbeat costs one write to a dict.
"""

from __future__ import annotations

import heapq


class Sessions:
    """The session deadlines of brokers, or of coordinators, by node id.

    Invariant: each id in `_deadline_ms` has exactly one heap entry, which is not later than its deadline. The entry of
    a removed id stays in the heap until it comes to the top."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._deadline_ms: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._in_heap: set[int] = set()

    def touch(self, node_id: int, now_ms: int) -> None:
        """Starts or renews the session of a node."""
        self._deadline_ms[node_id] = now_ms + self._timeout_ms
        if node_id not in self._in_heap:
            self._in_heap.add(node_id)
            heapq.heappush(self._heap, (now_ms + self._timeout_ms, node_id))

    def remove(self, node_id: int) -> None:
        """Ends the session of a node before its time-out."""
        self._deadline_ms.pop(node_id, None)

    def is_live(self, node_id: int, now_ms: int) -> bool:
        """Returns True if the node has a session that has not expired by `now_ms`."""
        return self._deadline_ms.get(node_id, now_ms) > now_ms

    def deadline_ms(self, node_id: int) -> int | None:
        """Returns the time at which the node's session expires, or None if it has none. Every heartbeat changes this
        time."""
        return self._deadline_ms.get(node_id)

    def renew(self, now_ms: int) -> None:
        """Renews the sessions of all nodes that have one."""
        for node_id in self._deadline_ms:
            self._deadline_ms[node_id] = now_ms + self._timeout_ms

    def expire(self, now_ms: int) -> list[int]:
        """Ends the sessions that have expired by `now_ms`. Returns their nodes, ordered by deadline."""
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
        """Returns the time at which to call `expire` again, or None if there is no session. The call may find no
        expired session."""
        return self._heap[0][0] if self._heap else None

    def check_invariants(self) -> None:
        """Asserts that each node has one heap entry, and that no entry is later than the node's deadline."""
        in_heap = [node_id for _, node_id in self._heap]
        assert len(in_heap) == len(set(in_heap)), in_heap
        assert set(in_heap) == self._in_heap, (in_heap, self._in_heap)
        for deadline_ms, node_id in self._heap:
            assert deadline_ms <= self._deadline_ms.get(node_id, deadline_ms), (deadline_ms, node_id)
        assert self._deadline_ms.keys() <= self._in_heap, (self._deadline_ms, self._in_heap)

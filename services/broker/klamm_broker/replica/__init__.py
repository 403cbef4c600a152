"""Partition replicas: their leadership, their high watermarks, and the requests that wait for them.

Start with partition.py, which is one replica: its role, its epoch, its high watermark. replica_manager.py owns all
replicas of the broker. leadership.py has the leader's view of its followers, and follower_partition.py the follower's
view of its leader. replica_session.py and follower_session.py are the two halves of a fetch session.

The duties of the caller
------------------------
1. Change replicas only through `ReplicaManager`, on one event loop. No call waits. A call tells the `ReplicaObserver`
   in the same turn what it changed.
2. Apply the metadata images in their order (`metadata/metadata_publisher.py`). Open a log before `host`. An image of an
   older leader epoch than the replica's must not come later.
3. A leader's append returns before it is acknowledged. Answer acks=all when `high_watermark` has passed the records,
   and acks=1 when they are below `acknowledgeable_offset` of the log's flusher. Make the sync that `on_sync_owed` asks
   for, and then call `on_synced`.
4. Ask the controller for each change that `on_isr_change` reports. Then call `on_isr_committed`, or `on_isr_refused`
   for a refusal and for an unknown outcome. Until then, the high watermark also waits for the replicas to be added.
5. Call `check_lag` at least twice in `replica.lag.time.max.ms`.
6. A follower may not fetch before its records are synced as `flush.messages` requires, because its position says that
   it has them. Apply each answer of the leader by `on_leader_answer`, and act on the returned step: fetch again, wait
   for metadata, or pause. Drop answers of an earlier session or leader epoch (`FollowerSession` does).
7. A leader sends a follower only what `ReplicaSession.locate` returns, and calls `sent` only after the bytes were
   handed over in the same turn. Otherwise the slices may be stale (`is_stale`).
8. A full disk raises DiskFull, and nothing was appended. Any other OSError takes the log directory offline.
9. Store `high_watermarks()` from time to time. A restarted replica begins with the stored one, which may be too low but
   never too high.
"""

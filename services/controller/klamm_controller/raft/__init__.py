"""The controllers' replicated log: Raft, pure and synchronous. Nothing here knows a socket, a disk, a clock or threads.

`RaftNode.step(event, now_ms) -> Effects` is the whole of it. Start with node.py (what holds in every role), then
follower.py, candidate.py and leader.py (one role each); messages.py has the vocabulary.

    messages, events, effects, settings               what goes in and out
    node -> follower, candidate, leader               the roles; voting: the voter's side of elections
    leader -> replication, voter_changes              how a leader sends, and changes who votes
    state -> raft_log -> membership                   term, vote, log, voter sets: what every role shares
    quorum, progress, read_index, snapshot, transfer  one small machine each

The duties of the caller
------------------------

1. Start from what the store holds (`StoredState`): hard state, newest whole snapshot, the entries after it. A part
   of a snapshot is thrown away, a torn last write is cut off; anything else that does not add up refuses to start.
   Load the state machine from the snapshot. A directory that lost its contents needs a new directory id.
2. Feed every event through `step`, one at a time, with a monotonic `now_ms`; step DeadlinePassed at
`next_deadline_ms()`, asked again after every step.
3. Carry out each Effects completely before the next step, in this order:
   a. begin to write `persist`, if there is one: atomically, and after all writes before it; several may share one
      sync. When it is durable, step LogPersisted with the newest id. A write that fails ends the process: what the
      disk holds is unknown then.
   b. send `messages`, in any order; they may be lost, repeated or late. Those that must wait for the disk are not
      among them: the core holds them back until LogPersisted.
   c. `restore`: replace the state machine by that stored snapshot.
   d. `committed`: apply the entries; the data entries are the caller's, the others for information. This is the
      only sign that an entry is certain, in a leader as in everybody else.
   e. `replies`: answer requests. A proposal is done when the entry of its index *and term* comes in `committed`;
      another term there means that it is lost; when the leadership ends before that, its outcome is unknown.
   f. `load_chunks`: read the bytes and step SnapshotChunkLoaded, later, without holding up anything.
   g. `leadership`: another replica leads. A leader may decide for clients once `is_active` and all that was delivered
   is applied.
4. Take snapshots: name them with `snapshot_at(end of what was applied)`, store them with their voters in the order
   of the writes (never an older one over a newer one), then step SnapshotSaved: the core cuts the log. Nothing else
   bounds the log's memory.
5. To stop a leader without an election time-out: step TransferLeadership, and go on until `leadership` names
   another.
6. Keep out what does not decode or is out of range, and messages of other clusters.
7. Call `check_invariants()` after steps where a broken one must stop the process (tests always do).

Kafka's way, etcd's way, ours
-----------------------------

- *Push, as etcd; KRaft pulls.* A pushed entry commits after one round trip without a parked fetch per replica, and
  controllers keep streams to each other anyway. What pulling gives for nothing, observers that announce themselves,
  is the AttachRequest.
- *Deadlines in ms, as KRaft;* etcd counts ticks.
- *Replicas are (node id, directory id), voter sets are entries, one voter changes at a time, as KIP-853.* etcd's
  joint consensus does more in one step, at the price of two quorums in every decision.
- *Pre-vote in the present term, as KIP-996,* and without changing the state of the voters asked; etcd asks in the next
term. A
  real vote is given in spite of a live leader, as in KRaft: a majority granted the pre-vote before it, or the
  leader asked for it.
- *Snapshots in chunks at byte positions, as KIP-630;* etcd sends one message.
- *A rejection names (end, term), as KIP-595's DivergingEpoch,* so that each message skips a whole term on both
  sides; etcd has come to the same.
- *The high watermark is not stored, as KRaft.* A restarted replica starts from its snapshot and applies again what the
leader says is committed.
- *Entries are delivered when they are committed and durable here;* etcd delivers when committed. It costs nothing
  in the common case, and a snapshot can never reach beyond the stored log.
- *Reads confirm the leadership by a round of messages, as etcd's ReadOnlySafe;* KRaft has none. No leases: no clock
  can break safety.
- *The log since the snapshot is in memory;* etcd and Kafka read it back from disk. Metadata is snapshotted every
  few MiB.
"""

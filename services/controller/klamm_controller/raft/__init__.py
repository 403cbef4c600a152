"""The controllers' replicated log: Raft as pure, synchronous code. It uses no sockets, disks, clocks or threads.

`RaftNode.step(event, now_ms) -> Effects` is the whole interface. Start with node.py, which has the rules of all roles.
Then read follower.py, candidate.py and leader.py, one role each. messages.py defines the terms.

    messages, events, effects, settings               the input and the output
    node -> follower, candidate, leader               the roles; voting: how a voter answers candidates
    leader -> replication, voter_changes              how a leader sends entries, and changes the voters
    state -> raft_log -> membership                   the state that all roles share: term, vote, log, voter sets
    quorum, progress, read_index, snapshot, transfer  one small part of a leader's or follower's work each

The duties of the caller
------------------------
1. Start from the content of the store (`StoredState`): the hard state, the newest complete snapshot, and the entries
   after it. Drop the parts of an incomplete snapshot and an incomplete last write. Refuse to start on any other
   damage. Load the state machine from the snapshot. A directory that lost its contents needs a new directory id.
2. Pass every event to `step`, one at a time, with a monotonic `now_ms`. Pass DeadlinePassed at `next_deadline_ms()`,
   which may change with every step.
3. Carry out each Effects completely before the next step, in this order:
   a. `persist`: start the write, if there is one. It is atomic and comes after all earlier writes. Several writes may
      share one sync. When a write is durable, step LogPersisted with the newest id. A write that fails must end the
      process, because the content of the disk is then unknown.
   b. `messages`: send them in any order. They may be lost, repeated or late. The core holds back messages that must
      wait for the disk until LogPersisted, so they are not in this list too early.
   c. `restore`: replace the state machine's state with this stored snapshot.
   d. `committed`: apply the data entries; the other entries are for information. An entry is certain only when it is
      in this list, for a leader as for every other replica.
   e. `replies`: answer requests. A proposal has succeeded when the entry with its index *and term* is in `committed`.
      It is lost if an entry with another term has this index. Its outcome is unknown if the leadership ends earlier.
   f. `load_chunks`: read the bytes and step SnapshotChunkLoaded, later, without blocking other events.
   g. `leadership`: another replica leads. A leader may decide for clients once `is_active` is True and all delivered
      entries are applied.
4. Take snapshots: name each with `snapshot_at(end of the applied entries)`, and store it with its voters in the order
   of the writes. Never replace a newer snapshot with an older one. Then step SnapshotSaved, and the core drops the
   entries before it. Only this bounds the log's memory.
5. To stop a leader without an election time-out, step TransferLeadership, and continue until `leadership` names
   another replica.
6. Drop messages that do not decode, are out of range, or come from other clusters.
7. Call `check_invariants()` after steps where a broken invariant must stop the process (tests always do).

Differences from Kafka (KRaft) and etcd
---------------------------------------
- *A leader pushes entries, as in etcd; KRaft's replicas pull them.* A pushed entry commits after one round trip, and no
  replica needs a waiting fetch. Controllers keep streams to each other anyway. With pulling, observers announce
  themselves by their fetches. Here, they send an AttachRequest.
- *Deadlines are in milliseconds, as in KRaft;* etcd counts ticks.
- *Replicas are (node id, directory id), voter sets are entries, and one voter changes at a time, as in KIP-853.* etcd's
  joint consensus changes several voters in one step, but every decision meanwhile needs two quorums.
- *A pre-vote asks in the current term, as in KIP-996,* and does not change the state of the voters; etcd asks in the
  next term. A voter with a live leader still grants a real vote, as in KRaft, because either a majority granted the
  pre-vote before or the leader asked for the election.
- *Snapshots are sent in chunks at byte positions, as in KIP-630;* etcd sends one message.
- *A rejection names (end, term), like KIP-595's DivergingEpoch,* so that each message skips a whole term on both sides.
  etcd now does the same.
- *The high watermark is not stored, as in KRaft.* A restarted replica starts from its snapshot and applies again the
  entries that the leader reports as committed.
- *A replica delivers entries once they are committed and durable on its own disk;* etcd delivers them when committed.
  Usually, this costs no time, and a snapshot never reaches beyond the stored log.
- *Reads confirm the leadership by a round of messages, like etcd's ReadOnlySafe;* KRaft has no such reads. There are no
  leases, so that no clock can break safety.
- *The log since the snapshot is in memory;* etcd and Kafka read it from disk. A snapshot is taken every few MiB.
"""

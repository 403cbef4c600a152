"""Groups of the new protocol (KIP-848) from the member's side: the coordinator assigns, the member reconciles.

membership.py   the state machine of one member: `step(event, now_ms)` returns effects
reconciler.py   moves the consumer from its partitions to the assigned ones
group_link.py   the shell: its calls, its timers, and the questions of polls

The duties of the caller
------------------------
1. Step SubscriptionChanged, and then Polled, at each poll of the application. Between polls the member sends heartbeats
   by itself. It leaves the group if two polls are further apart than `max.poll.interval.ms`.
2. Step Ticked at `next_deadline_ms()`, which every step may change, with a monotonic `now_ms`.
3. Send each SendConsumerHeartbeat to the group's coordinator, and step ConsumerHeartbeatAnswered with its token.
   Without an answer, step it with NETWORK_EXCEPTION or REQUEST_TIMED_OUT. An answer with an old token is ignored.
4. Forget the known coordinator after ForgetCoordinator, and find it again before the next heartbeat.
5. Give TakePartitions to the next poll: revoke what is not in it, with the listener's calls and a commit, add the rest,
   and step Reconciled with the partitions that the consumer then owns. The coordinator gives a partition to another
   member only after the heartbeat that follows.
6. After the state LOST, deliver no more records, tell the listener `on_partitions_lost`, and step LossHandled. Another
   member may own the partitions already, so do not commit.
7. Commit with the member's epoch (`identity`). If a commit is refused, step CommitRefused.
8. Step LeaveRequested to leave, and wait for SendConsumerLeave. Raise the exception of Fail at the next poll.
"""

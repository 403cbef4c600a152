"""The shards of `__consumer_offsets`: the rules over classic groups, consumer groups and offsets together.

rules.py     passes each request to its rules, and continues after a write
state.py     the durable state, which only acknowledged records change
replayer.py  fast loading of that state
deletion.py  deletion and expiry, of groups of either protocol and of offsets
releases.py  holds of retention that ended with the deletion of their group
refusals.py  the errors that requests get when their write fails
events.py shard_topic.py   events and the topic

The duties of the caller
------------------------
The rules run in a `ShardRuntime`, and its caller is `io/shard_host.py`.

1. Claim the log before the load, so that no earlier owner can append after the end that the load reads. Then replay
   every batch up to that end, in order, into `rules.replayer()`. Call `start` once.
2. Step one event at a time, and carry out all effects of a step before the next one. `Now` has a monotonic time for
   timers and a wall time for stored values. Step TimePassed at `next_deadline_ms()`, which every step may change.
3. Ask `takes` before each request. If it is False, call `refuse`, and answer the request without the shard.
4. Append the writes in their order, and the records of each write together. Step WriteAppended when all in-sync
   replicas have them. Step WriteFailed only if they are not in the log and never will be. While this is unknown, try
   again or release the shard. The writes are decided in their order.
5. Send each reply once, to the request that has its id. A client that has gone away changes nothing.
6. Check the rights of a request before the step, because the rules know no caller. A request has the topics that its
   caller may see (`Topics`).
7. Step TopicsDeleted, HoldsChanged and LogStartsFound when the metadata or the leaders show these. They may come late
   or twice. An event that never comes leaves offsets of deleted topics, or a hold that no group needs.
8. Before an answer that must not be stale, step ConfirmOwner and wait: a later owner may have claimed the log.
9. End the process if a step raises, because the state is then unknown. To release the shard, drop the runtime, answer
   its waiting requests with NOT_COORDINATOR, and call `rules.close()`.
10. Call `check_invariants()` where a broken invariant must stop the process (tests do after every step).
"""

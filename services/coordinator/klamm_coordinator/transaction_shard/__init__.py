"""The shards of `__transaction_state`: the rules over transactional ids and batch ledgers together.

rules.py            decides each request, or lets it wait
endings.py          the coordinator's own work: it completes transactions, aborts old ones, deletes unused ids
parked_requests.py  requests that wait, for a second at most
refusals.py         the errors that requests get when their append fails
messages.py records.py settings.py shard_topic.py transaction_context.py   the types that these use

The duties of the caller
------------------------
Those of a shard of groups (`group_shard`, 1 to 6, 9 and 10) hold here too. A shard of transactions adds these:

1. Keep producer ids in the `ProducerIdPool` that all shards of the coordinator share. A step cannot wait for an id. If
   the pool is empty, the request gets an error, and its client tries again.
2. Carry out the orders (`effects.orders`): write a SendMarkers to each of its partitions until the partition has the
   marker, or is deleted, or has a greater producer epoch. Then step MarkersWritten. Orders come again after the shard
   is loaded by another coordinator, so a marker may be written twice, and the partition takes the second one for done.
3. Cancel the sending of markers when the shard is released. Its next owner orders them again.
4. Let a client add a partition only after the check of its rights. The markers are written in the coordinator's name.
"""

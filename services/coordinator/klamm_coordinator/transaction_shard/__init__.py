"""The shards of `__transaction_state`: the rules over transactional ids and batch ledgers together.

rules.py            decides each request, or lets it wait
endings.py          the coordinator's own work: it completes transactions, aborts old ones, deletes unused ids
parked_requests.py  requests that wait, for a second at most
refusals.py         the errors that requests get when their append fails
messages.py records.py settings.py shard_topic.py turn.py   the types that these use
"""

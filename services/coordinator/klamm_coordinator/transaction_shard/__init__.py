"""The shards of `__transaction_state`: the rules over transactional ids and batch ledgers together.

rules.py            what a request means now: it is decided, or it waits
endings.py          what the coordinator does by itself: ends, time-outs, expiry
parked_requests.py  requests that wait, for a second at most
refusals.py         what a requester is told when its append fails
messages.py records.py settings.py shard_topic.py turn.py   the words for it
"""

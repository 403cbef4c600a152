"""The shards of `__consumer_offsets`: the rules over classic groups, consumer groups and offsets together.

rules.py     what goes where, and what follows a write
state.py     what is promised: changed by acknowledged records only
replayer.py  loading, fast
deletion.py  deletion and expiry, of groups of either protocol and of offsets
refusals.py  what a requester is told when its write fails
events.py shard_topic.py   the words for it
"""

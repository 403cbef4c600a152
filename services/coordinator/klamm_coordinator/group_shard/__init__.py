"""The shards of `__consumer_offsets`: the rules over classic groups, consumer groups and offsets together.

rules.py     passes each request to its rules, and continues after a write
state.py     the durable state, which only acknowledged records change
replayer.py  fast loading of that state
deletion.py  deletion and expiry, of groups of either protocol and of offsets
releases.py  holds of retention that ended with the deletion of their group
refusals.py  the errors that requests get when their write fails
events.py shard_topic.py   events and the topic
"""

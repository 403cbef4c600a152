"""Groups of Kafka's classic protocol, as a pure state machine: members join a generation together, a leader assigns.

group.py      a group: its state, its members and what it keeps about them
join.py       how a member enters a group or a new generation of it
rebalance.py  the join phase, its end, the sync phase
sync.py       the leader sends the assignments, and each member gets its own
session.py    heartbeats, leaving, commits in a member's name
groups.py     all groups of a shard; passes each request to its group
"""

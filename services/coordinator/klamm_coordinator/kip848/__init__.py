"""Groups of the new protocol (KIP-848): the coordinator makes the assignments, members reconcile one by one.

group.py       the stored state of a group, which only its records change
subscribe.py   the first half of a heartbeat: updates the member from the request
target.py      the target assignment of all members, which an assignor makes
reconcile.py   the second half of a heartbeat: one step of the member towards its target
departure.py   removes members that leave or are fenced, and deletes groups
upgrade.py     makes a consumer group of a classic group with members
downgrade.py   makes a classic group of a consumer group with members
classic_members.py   the members that use the classic protocol in a consumer group
deadlines.py   the timers of members
change.py      the records of one write, and the group after that write
groups.py      the groups of a shard: one write of a group at a time, while other requests for the group wait
"""

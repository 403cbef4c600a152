"""Groups of the new protocol (KIP-848): the coordinator makes the assignments, members reconcile one by one.

group.py       what is stored of a group, changed by its records only
subscribe.py   a heartbeat's first half: the member, and what it says of itself
target.py      what everybody is to have, by an assignor
reconcile.py   a heartbeat's second half: from what a member has towards its target
departure.py   leaving, being fenced, deletion
change.py      the records of one write, and the group as they make it
groups.py      the groups of a shard: one write of a group at a time, requests in between wait for it
"""

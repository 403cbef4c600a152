"""A simulation of retention that waits for groups: brokers, coordinators, and groups that read a partition.

The code under test is the broker's check of held logs, its retention of a log, the rules of a hold, and the
coordinator's search for the lowest offset. The simulation has everything around them: metadata that servers learn late,
shards that move to other coordinators, frozen and crashed servers, and lost messages.

Records appear on all replicas at once, because the simulation of the partition (isrsim) is about their replication.
"""

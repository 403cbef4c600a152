"""A simulated partition: brokers that run the real leader and follower, a controller that runs the real handlers.

Real are `klamm_broker.replica` (Partition, Leadership, FollowerPartition, PendingAppend, LeaderEpochCache) and
`klamm_controller.metadata` (registration, heartbeats, fencing, elections, AlterPartition), with the real metadata
records and image in between. Simulated are time, the network, the disks, the processes' deaths, and what the services
do with gRPC: fetch sessions, requests with a time-out, the metadata stream.

The quorum of controllers is one controller that never fails and always answers in order: that several are as good as
one is what tests/sim/raftsim is for. One partition is simulated, as partitions know nothing of each other.
"""

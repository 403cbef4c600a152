"""A simulated partition: brokers that run the real leader and follower, a controller that runs the real handlers.

Real are `klamm_broker.replica` (the replica manager and the partition under it, the sessions of both ends, pending
produces), the epochs and producers of logs, and `klamm_controller.metadata` (registration, heartbeats, fencing, sweeps,
elections, AlterPartition, reassignment), with the real metadata records and image in between. Simulated are time, the
network, the disks, the processes' deaths, the clients, and what the services do with gRPC (`streams.py`).

The quorum of controllers is one controller that answers in order, and that another one may take over from at any time:
that several are as good as one is what tests/sim/raftsim is for. One partition is simulated, as partitions know nothing
of each other.
"""

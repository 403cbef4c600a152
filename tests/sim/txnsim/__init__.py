"""The transaction protocol simulated: the coordinator's core and the partitions' producer state, in a world of faults.

options.py      what one seed's world is like
network.py      messages that are lost, late, or arrive twice
state_log.py    `__transaction_state`: idempotent appends, fenced by the owner's epoch
coordinator.py  owners of the shard, one after the other and sometimes two at a time
partition.py    a partition with the broker's producer state and verification guards
producer.py     a client of KIP-890: one instance of a transactional producer
checks.py       what must hold
cluster.py      all of them, and the faults
run.py          one seed
mutations.py    planted bugs
"""

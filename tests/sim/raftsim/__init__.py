"""A simulated quorum. One seed decides every event in it.

world      the clock and the heap of future events
options    the faults of a seed, and how often they happen (swarm testing: each seed draws its own)
network    delays, loses, duplicates, reorders; cuts links one way or both ways
disk       the written state, the durable state, and the state after a crash
replica    a RaftNode with its disk, its clock, its state machine: the shell's part, in a few lines
cluster    the replicas together, and the checkers that watch them
workload   clients, administrators, and the causes of faults
checkers   the properties that must hold, one class each
mutations  known Raft mistakes, planted to prove that the checkers see them
run        one seed from beginning to end
"""

"""A simulated quorum: one seed decides everything that happens to it.

world      the clock and the heap of what is to happen
options    which faults a seed has, and how often (swarm testing: each seed draws its own)
network    delays, loses, duplicates, reorders; cuts links one way or both ways
disk       what is written, what is durable, and what a crash leaves
replica    a RaftNode with its disk, its clock, its state machine: the shell's part, in a few lines
cluster    the replicas together, and the checkers that watch them
workload   clients, administrators, and the causes of faults
checkers   what must hold, one class each
mutations  known Raft mistakes, planted to prove that the checkers see them
run        one seed from beginning to end
"""

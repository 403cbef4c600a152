"""What all simulations share.

world        virtual time, the heap of what is to happen, and one source of randomness
cluster      what a seed's faults befall, and the notes of what happened
network      links that lose and delay messages, and that are cut
options      what a seed draws: the cluster's size, and which faults it has
violation    the error that a broken rule is
mutation     a planted bug
runner       seeds on every core: the command of all simulations
model_tests  the tests that every simulation passes: a slice of seeds, and every planted bug
"""

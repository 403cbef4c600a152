"""The parts that all simulations share.

world        virtual time, the heap of future events, and one source of randomness
cluster      the end of a seed's faults, and the notes of its events
network      links that lose and delay messages, and that are cut
options      the values that a seed draws: the cluster's size, and its faults
violation    the error that a broken rule is
mutation     a planted bug
runner       seeds on every core: the command of all simulations
model_tests  the tests that every simulation passes: a slice of seeds, and every planted bug
"""

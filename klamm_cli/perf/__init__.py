"""`klamm perf`: measures how fast a cluster is with the user's records, on topics that it makes and deletes itself.

The rooms, from the top:

command                        the options, the output
measuring                      runs the cells of a matrix, each on a topic of its own
producing, consuming, end_to_end, sample_reader, own_topic, clients   talk to the cluster
report                         rows and the recommendation; pure
matrix, sample, load, latencies   values; pure
"""

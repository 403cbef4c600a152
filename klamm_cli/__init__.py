"""The command `klamm`. It may import the client, the services and Spark; only `klamm.__main__` imports it.

main.py, app.py                the command and its exit status
commands/ top/ doctor/ perf/   the commands; each module is loaded when its command runs
why/                           finds out why a group is behind
spread/                        copies a topic into one with more partitions
balance/                       plans which leaders and replicas move, by measured load
status/                        finds the problems of a cluster
log_dump/                      shows what the files of a data directory hold
text/                          records, positions and times as people write them
sizing.py                      computes the size of a topic
console/                       options, connecting, output, completion
"""

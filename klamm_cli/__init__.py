"""The command `klamm`: above the client, the services and Spark, all of which it may use.

main.py, app.py             the command, and how it ends
commands/ top/ doctor/      what it can do; loaded when called
status/                     what is wrong with a cluster, for people
log_dump/                   what the files of a data directory hold
text/                       records, positions and times as people write them
console/                    options, connecting, output, completion
"""

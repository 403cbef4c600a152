"""The controller owns the cluster's metadata and makes all decisions about it.

Each package may import only the packages below it:

    server.py   opens the parts of a controller and connects them
    rpc/        the RPCs that brokers, coordinators and operators call
    active/     the work of the active controller: a queue of decisions, sessions, leader balance, sweeps
    io/         the connections between the controllers of a quorum
    log/        writes the metadata log and its snapshots to disk
    config.py   the controller's settings
    metadata/   decides on requests, without I/O
    raft/       agrees with the other controllers on the order of the log's entries, without I/O
"""

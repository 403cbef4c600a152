"""The controller: owns the cluster's metadata, and everything that is decided about it.

Each room may use those below it:

    server.py   opens what is below and joins it
    rpc/        how others reach it
    active/     what the active controller does: one queue of decisions, sessions, balance, sweeps
    io/         the way between the controllers of a quorum
    log/        makes decisions durable
    config.py   its settings
    metadata/   decides; raft/ agrees on the order of what is decided      both pure
"""

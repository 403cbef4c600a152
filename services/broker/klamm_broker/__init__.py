"""The broker: logs, replicas, and two doors to them.

Each room may use those below it; the doors do not know each other:

    server.py      opens what is below and joins it
    kafka/  grpc/  the doors: the Kafka wire protocol and gRPC
    handlers/      what is done for a request, whichever door it came through
    replication/   fetching from leaders, telling the controller who is in sync
    maintenance/   retention, compaction, scrubbing, moves between log dirs
    metadata/      images of the cluster, published to logs and replicas
    io/            small shells that the rooms above share
    purgatory/     requests that wait for something
    replica/       a replica's rules: leader, follower, high watermark        pure
    log/           storage
"""

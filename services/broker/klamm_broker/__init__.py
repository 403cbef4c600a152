"""The broker: logs, replicas, and two protocols to reach them.

Each package may use those below it. `kafka` and `grpc` do not use each other:

    server.py      creates the packages' objects and connects them
    processes/     several broker processes of one host
    kafka/  grpc/  the two protocols: the Kafka wire protocol and gRPC
    handlers/      the handling of requests, for both protocols
    replication/   fetching from leaders, and sending changes of in-sync sets to the controller
    maintenance/   retention, compaction, scrubbing, moves between log directories
    metadata/      images of the cluster, published to logs and replicas
    io/            input and output that the packages above share
    purgatory/     requests that wait for something
    replica/       a replica's rules: leader, follower, high watermark        pure
    log/           storage
"""

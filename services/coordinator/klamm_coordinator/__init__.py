"""The coordinator: consumer groups and their offsets, kept in `__consumer_offsets`.

    records/  what is stored, in Kafka's schemas        ◆
    group/    a group's members and rebalances          ◆
    offsets/  committed offsets                         ◆
    shard/    one partition of the topic: requests and timers in, records and replies out   ◆
    io/       appending to and loading from the brokers
    rpc/      the gRPC service
    server.py joins them

◆ pure: no I/O, no clock, no randomness but what is passed in.
"""

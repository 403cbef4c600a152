"""The coordinator: groups and their offsets in `__consumer_offsets`, transactions in `__transaction_state`.

Each module or package may import only those below it:

    server.py           follows the metadata, registers, serves
    rpc/                the gRPC service, and the kinds of shards that are served
    io/                 a shard's shell; appending to and loading from the brokers
    group_shard/        the rules of a shard of groups: all of classic, kip848 and offsets together       pure
    transaction_shard/  the rules of a shard of transactions: transaction and ledger together             pure
    offsets/            committed offsets                                                                 pure
    ledger/             batch ledgers, which end the transactions of a Spark batch as one                 pure
    kip848/             groups of the new protocol (KIP-848)                                              pure
    transaction/        the rules of transactions                                                         pure
    classic/            a classic group's members and rebalances                                          pure
    groups/             code that the rules of both kinds of groups share                                 pure
    lag/                what groups have still to read, and the history of their offsets                  pure
    records/            the stored records of groups, in Kafka's schemas                                  pure
    runtime/            the runtime that runs the rules of any kind of shard                              pure

Pure code does no I/O. It has no clock and no randomness, unless the caller passes them in.
"""

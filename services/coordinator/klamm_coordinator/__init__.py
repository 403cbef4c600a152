"""The coordinator: groups and their offsets in `__consumer_offsets`, transactions in `__transaction_state`.

Each room may use those below it:

    server.py           follows the metadata, registers, serves
    rpc/                the gRPC service, and the kinds of shards that are served
    io/                 a shard's shell; appending to and loading from the brokers
    group_shard/        the rules of a shard of groups: all of classic, consumer and offsets together     pure
    transaction_shard/  the rules of a shard of transactions: transaction and ledger together             pure
    offsets/            committed offsets                                                                 pure
    ledger/             batch ledgers, which end the transactions of a Spark batch as one                 pure
    consumer/           groups of the new protocol (KIP-848)                                              pure
    transaction/        what becomes of a transaction                                                     pure
    classic/            a classic group's members and rebalances                                          pure
    groups/             what the rules of both kinds of groups share                                      pure
    records/            what is stored of groups, in Kafka's schemas                                      pure
    runtime/            what runs the rules of any kind of shard                                          pure

Pure means: no I/O, no clock, no randomness but what is passed in.
"""

"""The broker's storage: partition logs in Kafka's on-disk formats, over one or more log dirs.

Each room may use those below it:

    dirs/         all logs of a broker: finding, opening, creating, moving and deleting them
    partition/    one log: its segments as one sequence of offsets
    scrub/        looking for damage at rest
    cleaning/     retention and compaction
    producers/    idempotent and transactional producers
    segment/      one segment, its batches and indexes
    files/        the disk as a port, its failures, and the small files of a log dir and a partition
    log_config.py what a topic's configuration means to its logs

These modules are pure: `log_config`, `retention`, `retention_forecast`, the rules of producers (`producer_state`,
`open_transactions`, `verification`), and of a segment `record_set`, `batch_starts`, its states and the three indexes.
"""

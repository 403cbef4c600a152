"""The broker's storage: partition logs in Kafka's on-disk formats, over one or more log directories.

Each package may use those below it:

    dirs/         all logs of a broker: finding, opening, creating, moving and deleting them
    partition/    one log: its segments as one sequence of offsets
    scrub/        finding and repairing damage on the disk
    cleaning/     retention and compaction
    producers/    idempotent and transactional producers
    segment/      one segment, its batches and indexes
    files/        the interface of the disk, its failures, and the small files of a log directory and a partition
    log_config.py the settings of a topic, for its logs

These modules are pure: `log_config`, `retention`, `retention_forecast`, the rules of producers (`producer_state`,
`open_transactions`, `verification`), and of a segment `record_set`, `batch_starts`, its states and the three indexes.
"""

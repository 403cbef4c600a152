"""The broker's storage: partition logs in Kafka's on-disk formats, over one or more log dirs.

From the outside in:

- `log_manager`: all logs of a broker; `found_logs`: which of them a start finds; `log_directories`: the log dirs;
  `directory_names`, `meta_properties`, `dir_lock`, `clean_shutdown`, `checkpoints`: what a log dir holds;
  `storage_failure`: what happens when it fails
- `partition_log`: one log; `record_set`: what may be appended to it; `retention`: what may be dropped from it;
  `log_flush`: how it gets durable; `leader_epochs`, `partition_metadata`: what it keeps beside its segments
- `log_creation`, `log_deletion`, `log_checkpoint`: what is done to many logs at once, on a disk thread
- `log_loader`, `leftovers`: opening a log, after an orderly stop or a crash
- `segment`: one segment; `offset_index`, `time_index`, `batch_scan`: finding things in it; `segment_pool`: how
  many are open
- `disk`: the operating system

`log_config`, `offset_index`, `time_index`, `record_set`, `retention` and the leader epoch cache are pure.
"""

"""Background work on logs: retention, compaction, scrubbing, and moves between log directories."""

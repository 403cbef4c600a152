"""Work beside requests: retention, compaction, scrubbing, moves between log dirs."""

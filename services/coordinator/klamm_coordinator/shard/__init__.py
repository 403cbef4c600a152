"""One shard of the coordinator: one partition of `__consumer_offsets` and the groups whose ids hash to it."""

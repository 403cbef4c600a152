"""Consumer groups of the new protocol (KIP-848): a real shard, members as client libraries behave, a log, a bad day."""

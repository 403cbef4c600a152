"""The Coordinator service (proto/klamm/v1/coordinator.proto): decode, check, ask the shard, encode."""

"""The Coordinator service (proto/klamm/v1/coordinator.proto): decodes and checks requests, asks shards, encodes
answers."""

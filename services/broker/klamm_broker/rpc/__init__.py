"""The Broker API, one file per family of calls: decode, ask the replicas, wait, encode."""

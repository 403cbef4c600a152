"""What members of either protocol share: events and effects, identity, reports of rebalances."""

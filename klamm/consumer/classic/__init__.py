"""The member's side of the classic group protocol: join, sync, heartbeat, rebalance."""

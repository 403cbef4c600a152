"""Groups of the classic protocol from the member's side: join, sync, heartbeat, rebalance."""

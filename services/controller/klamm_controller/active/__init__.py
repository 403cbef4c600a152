"""What the active controller does: decides, watches who lives, balances leaders, deletes what is over."""

"""What the broker asks of other servers."""

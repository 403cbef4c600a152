"""Input and output that the other packages share: reading records, memory bounds, calls to controllers, metrics."""

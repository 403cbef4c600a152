"""Small shells that the rooms above share: reading records, bounds on memory, calls to controllers, metrics."""

"""The log of one replica: its segments as one sequence of offsets."""

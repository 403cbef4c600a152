"""The connections between the controllers of a quorum."""

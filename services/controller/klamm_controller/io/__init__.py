"""The way between the controllers of a quorum."""

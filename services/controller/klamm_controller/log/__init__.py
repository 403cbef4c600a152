"""The metadata log: the port that the state machine writes to, and what stands behind it."""

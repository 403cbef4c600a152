"""The metadata log: the interface to which the state machine writes, and its implementation."""

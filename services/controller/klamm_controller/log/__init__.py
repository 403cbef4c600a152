"""The metadata log: the interface that the state machine uses, and its implementation."""

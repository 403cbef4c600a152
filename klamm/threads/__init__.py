"""The blocking faces: an event loop in a thread of its own, and calls that wait for it."""

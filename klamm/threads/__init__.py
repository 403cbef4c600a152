"""Support for the synchronous clients: an event loop in a background thread, and calls that wait for it."""

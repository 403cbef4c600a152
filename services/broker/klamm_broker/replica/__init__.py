"""Partition replicas: which one leads, what is committed, and the requests that wait for it."""

"""Partition replicas: who leads, what is committed, and the requests that wait for it."""

"""Knowing a cluster and asking it: metadata, the client that every role uses, calls to leaders."""

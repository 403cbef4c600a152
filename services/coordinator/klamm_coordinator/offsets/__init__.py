"""Committed offsets: which members may commit, what is stored, what an open transaction may change, when it expires."""

"""Committed offsets, and the look-up of the positions where a consumer begins to read."""

"""Committed offsets, and where a consumer begins to read."""

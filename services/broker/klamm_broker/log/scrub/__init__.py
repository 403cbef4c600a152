"""Finds damage in sealed segments, and rewrites damaged segments."""

"""Parses and formats records, positions and times as people and scripts write them."""

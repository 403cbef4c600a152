"""Retention and compaction: which segments are deleted, and which records compaction removes."""

"""Retention and compaction: which segments go, and which records of them."""

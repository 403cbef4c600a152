"""A segment: its batches, its indexes, and what is done to one file of records."""

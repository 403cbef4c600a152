"""A segment: its batches, its indexes, and the operations on its file of records."""

"""Committed offsets: the checks of a commit, the stored offsets, the offsets of open transactions, and expiry."""

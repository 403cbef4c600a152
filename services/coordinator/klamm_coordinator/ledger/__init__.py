"""Batch ledgers: they commit or abort all transactions of a Spark batch together, and commit each batch once."""

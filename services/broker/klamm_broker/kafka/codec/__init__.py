"""Reads and writes messages: by hand for the data path, by the schemas of kio for all others."""

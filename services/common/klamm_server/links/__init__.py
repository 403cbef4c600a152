"""A server's ties to its cluster: registration, the stream of metadata, producer ids."""

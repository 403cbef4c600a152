"""Access to a cluster: the metadata, the client that producers, consumers and the Admin share, and calls to leaders."""

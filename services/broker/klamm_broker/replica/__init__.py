"""Partition replicas: their leadership, their high watermarks, and the requests that wait for them."""

"""What the files of a data directory hold, for people: `klamm log dump`.

It reads with the services' own readers. Nothing in this package writes into a data directory: it may be that of a
running server, or evidence.
"""

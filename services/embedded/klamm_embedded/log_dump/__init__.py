"""What the files of a data directory hold, for people: `klamm log dump`.

Here, and not in the command line, because it reads with the services' own readers, and the client library knows none
of them. Nothing in this package writes into a data directory: it may be that of a running server, or evidence.
"""

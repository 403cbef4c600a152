"""`klamm log dump`: shows what the files of a data directory hold.

The package reads files with the services' own readers. It never writes into a data directory, because a running server
may use the directory, or somebody may need it as evidence.
"""

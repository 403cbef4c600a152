"""The generated pages of the reference in `docs/reference`: command line, gRPC API, metrics and alerts, error codes.

`python -m tools.reference` writes them again, `--check` only tells which are out of date. The settings are written by
`klamm configs docs`.
"""

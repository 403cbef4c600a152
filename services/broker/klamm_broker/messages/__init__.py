"""Messages of the Broker service that arrive at both kinds of listeners.

    fetch.py     reads Fetch requests, and writes their answers
    produce.py   the same for Produce
    nodes.py     servers with the addresses that the caller can dial

All other messages of the service are read and written in `klamm_broker.grpc`.
"""

"""The gRPC protocol of the broker: reads and writes the Broker service's messages, over the same handlers as Kafka's.

    servicer.py       every call of the service, refused until the broker is ready
    produce.py, fetch.py, metadata.py, ...   one family of calls each
    nodes.py          servers with the addresses that the caller can dial

Only gRPC has calls to check segments, so that their whole code is here (`scrubs.py`).
"""

"""The Kafka wire protocol of the broker, over the same handlers as gRPC.

    connection.py     reads frames from a socket, and serves one request at a time in order
    frame_buffer.py   the bytes read from a socket, and the frames in them
    listener.py       the port, its connections and their limits
    api.py            the declaration of an API at its handler: key, versions, rights
    served_apis.py    all declared APIs
    requests.py       the request header
    apis.py           answers requests by API key, for the hot path
    cold_apis.py      the same for all other APIs; loaded at their first request, with kio
    wire.py           reads and writes the protocol's types by hand, for the hot messages
    messages.py       reads and writes the other messages, by kio's schemas
    produce.py, fetch.py, metadata.py, ...   one family of APIs each

Kafka clients see only brokers. The broker forwards requests for coordinators and controllers to them over gRPC
(`forwarding.py`). FindCoordinator always names a live broker.
"""

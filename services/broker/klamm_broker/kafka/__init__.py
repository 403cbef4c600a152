"""The Kafka wire protocol: a second door to the broker, over the same handlers as gRPC.

    connection.py     frames off and onto a socket, one request at a time, answered in order
    frame_buffer.py   what was read of a socket, and the frames in it
    listener.py       the port, its connections and their bounds
    requests.py       the request header, and which versions of which API are spoken
    apis.py           request -> answer, by API key: the hot path's
    cold_apis.py      the others', loaded when the first of them is asked for
    wire.py           reading and writing the protocol's types by hand, for the hot messages
    messages.py       the other messages, by kio's schemas
    produce.py, fetch.py, metadata.py, ...   one family of APIs each

Kafka clients see brokers only. The broker forwards requests for coordinators and controllers to them over gRPC
(`forwarding.py`). FindCoordinator always names a live broker.
"""

"""The gRPC door: the Broker service's messages, read and written around the handlers that both doors share.

    servicer.py       every call of the service, closed until the broker is ready
    produce.py, fetch.py, metadata.py, ...   one family of calls each
    nodes.py          servers as the caller can dial them

What only this door has, the checks of segments, is here altogether.
"""

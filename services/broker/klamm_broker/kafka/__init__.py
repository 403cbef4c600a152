"""The Kafka wire protocol of the broker, over the same handlers as gRPC.

    api.py            the declaration of an API at its handler: key, versions, rights
    served_apis.py    all declared APIs
    requests.py       the request header
    apis.py           answers requests by API key, for the hot path
    cold_apis.py      the same for all other APIs; loaded at their first request, with kio
    net/              listeners and connections: `connection.py` serves one request at a time in order
    login/            SASL
    codec/            reads and writes messages
    hot/, cold/       one family of APIs in each module

Kafka clients see only brokers. The broker forwards requests for coordinators and controllers to them over gRPC
(`cold/forwarding.py`). FindCoordinator always names a live broker.
"""

"""Configs that Klamm describes differently from Apache Kafka 4.4.0: which fields differ, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Known = Mapping[str, tuple[Sequence[str], str]]

_ELR = "Kafka sets it for the whole cluster when it enables eligible leader replicas; here they need no setting."
_TIERED = "There is no tiered storage, and a topic follows no config of brokers for it."
_FILE_ONLY = (
    "It changes by a restart: a listener that Kafka adds at run time is not in its registration, so no use to clients."
)
_BY_FILES = (
    "Certificates and keys change with their files, which are read again; what else there is of TLS by a restart."
)
_ONLY_PEM = "Stores are PEM."
_NO_SECRET = "A certificate is no secret, and is shown."
_OWN_PLACE = "Each has its own addresses and directories."
_OWN_DEFAULT = "It has another default."
_NO_ROLES = (
    "Kafka's node must set it. Each server of Klamm has one role; a server reads it only from a file written for Kafka."
)

_HOLD = "Retention can wait for groups here."

ONLY_HERE: Mapping[str, str] = {
    "retention.hold.groups": _HOLD,
    "retention.hold.max.bytes": _HOLD,
    "retention.hold.max.ms": _HOLD,
    "unclean.recovery.strategy": "Unclean recovery (KIP-966) is not in Kafka yet.",
}
"""Topic configs that Kafka does not have, and why Klamm does."""

TOPIC: Known = {
    "min.insync.replicas": (("source", "synonyms"), _ELR),
    "local.retention.bytes": (("synonyms",), _TIERED),
    "local.retention.ms": (("synonyms",), _TIERED),
    "remote.copy.lag.bytes": (("synonyms",), _TIERED),
    "remote.copy.lag.ms": (("synonyms",), _TIERED),
}
BROKER: Known = {
    "min.insync.replicas": (("source", "synonyms"), _ELR),
    "controller.listener.names": (("value", "source", "synonyms"), _NO_ROLES),
    "process.roles": (("value", "source", "synonyms"), _NO_ROLES),
    "controller.quorum.bootstrap.servers": (("value", "synonyms"), _OWN_PLACE),
    "listeners": (("value", "read_only", "synonyms"), f"{_OWN_PLACE} {_FILE_ONLY}"),
    "listener.security.protocol.map": (
        ("value", "read_only", "type", "synonyms"),
        f"Its default follows from the listeners; it is a list. {_FILE_ONLY}",
    ),
    "log.dir": (("value", "synonyms"), _OWN_PLACE),
    "log.dirs": (("value", "synonyms"), _OWN_PLACE),
    "max.connections": (("value", "synonyms"), _OWN_DEFAULT),
    "offsets.topic.replication.factor": (
        ("value", "source", "type", "synonyms"),
        "Kafka's single node of the tests sets it; a number of 16 bits is an INT here.",
    ),
    "queued.max.request.bytes": (("value", "synonyms"), f"{_OWN_DEFAULT} The memory of requests is bounded."),
    "sasl.enabled.mechanisms": (
        ("value", "read_only", "synonyms"),
        f"{_OWN_DEFAULT} Kafka's is GSSAPI, which is not spoken here. It changes by a restart.",
    ),
    "sasl.server.max.receive.size": (("value", "synonyms"), f"{_OWN_DEFAULT} Nobody needs more to log in."),
    "socket.send.buffer.bytes": (("value", "synonyms"), _OWN_DEFAULT),
    "ssl.cipher.suites": (("read_only",), _BY_FILES),
    "ssl.client.auth": (("read_only",), _BY_FILES),
    "ssl.enabled.protocols": (("read_only",), _BY_FILES),
    "ssl.endpoint.identification.algorithm": (("read_only",), _BY_FILES),
    "ssl.key.password": (("read_only",), _BY_FILES),
    "ssl.keystore.certificate.chain": (("read_only", "sensitive", "type"), f"{_NO_SECRET} {_BY_FILES}"),
    "ssl.keystore.key": (("read_only",), _BY_FILES),
    "ssl.keystore.location": (("read_only",), _BY_FILES),
    "ssl.keystore.type": (("value", "read_only", "synonyms"), f"{_ONLY_PEM} {_BY_FILES}"),
    "ssl.truststore.certificates": (("read_only", "sensitive", "type"), f"{_NO_SECRET} {_BY_FILES}"),
    "ssl.truststore.location": (("read_only",), _BY_FILES),
    "ssl.truststore.type": (("value", "read_only", "synonyms"), f"{_ONLY_PEM} {_BY_FILES}"),
}

"""What DescribeConfigs says of a config otherwise than Apache Kafka 4.3.1: by name the fields, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Known = Mapping[str, tuple[Sequence[str], str]]

_ELR = "Kafka sets it for the whole cluster when it enables eligible leader replicas; here they need no setting."
_TIERED = "There is no tiered storage, so no config of brokers for it."
_FILE_ONLY = "It is set in the broker's file and not at run time."
_OWN_PLACE = "Each has its own addresses and directories."
_OWN_DEFAULT = "It has another default."
_IN_THE_FILE = (
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "producer.id.expiration.ms",
)

TOPIC: Known = {
    "min.insync.replicas": (("source", "synonyms"), _ELR),
    "local.retention.bytes": (("synonyms",), _TIERED),
    "local.retention.ms": (("synonyms",), _TIERED),
}
BROKER: Known = {
    "min.insync.replicas": (("source", "synonyms"), _ELR),
    "controller.quorum.bootstrap.servers": (("value", "synonyms"), _OWN_PLACE),
    "listeners": (("value", "read_only", "synonyms"), f"{_OWN_PLACE} {_FILE_ONLY}"),
    "listener.security.protocol.map": (
        ("value", "read_only", "type", "synonyms"),
        f"Its default follows from the listeners; it is a list. {_FILE_ONLY}",
    ),
    "log.dir": (("value", "synonyms"), _OWN_PLACE),
    "log.dirs": (("value", "synonyms"), _OWN_PLACE),
    "max.connections": (("value", "read_only", "synonyms"), f"{_OWN_DEFAULT} {_FILE_ONLY}"),
    "offsets.topic.replication.factor": (
        ("value", "source", "type", "synonyms"),
        "Kafka's single node of the tests sets it; a number of 16 bits is an INT here.",
    ),
    "queued.max.request.bytes": (("value", "synonyms"), f"{_OWN_DEFAULT} The memory of requests is bounded."),
    "socket.send.buffer.bytes": (("value", "synonyms"), _OWN_DEFAULT),
    **dict.fromkeys(_IN_THE_FILE, (("read_only",), _FILE_ONLY)),
}

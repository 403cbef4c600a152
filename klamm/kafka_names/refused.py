"""Kafka's names of configurations that Klamm refuses, and what a user has to write in their place.

A name is here if people find it in a configuration of Kafka, and if it would promise something that Klamm does not do.
Most of the names are old ones: of Kafka's Scala clients, which ended with Kafka 2.0, of brokers beside ZooKeeper, which
ended with Kafka 4.0, and of older versions of today's servers. Others are names of librdkafka, which has its own, and
names that only a client in Java can make use of. The rest are names of Kafka's that a program of another kind reads: a
producer refuses the settings of consumers, and a broker has other names for the settings of topics. For these a near
miss would be wrong, because the user did not mistype them.

A name can stand for different settings in different programs. So each name has a list of replacements, and the first
one that the program knows is the right one. If a name has replacements and the program knows none of them, the table
has no advice for that program. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple


class Refused(NamedTuple):
    """A name that a program of Klamm refuses."""

    name: str
    reason: str
    """A clause that says whose name it is, or what Klamm lacks."""
    replacements: tuple[str, ...] = ()
    """The names to write in its place. The first one that a program knows is right for that program."""


_SCALA: Final = "{name} is a name of Kafka's Scala clients"
_JAVA_BEFORE: Final = "{name} is a name of Kafka's first producer in Java"
_OLD_SERVERS: Final = "{name} is a name that Kafka's servers no longer have"
_OLD_TOPICS: Final = "{name} is a name that Kafka's topics no longer have"
_TOPICS: Final = "{name} is a setting of topics"
_BROKERS: Final = "{name} is a setting of brokers"
_LIBRDKAFKA: Final = "{name} is a name of librdkafka"
_ZOOKEEPER: Final = "Klamm has no ZooKeeper"
_CONTROLLERS: Final = "controller.quorum.bootstrap.servers"

_RENAMED: Final[Mapping[str, str]] = {
    _SCALA: """
        auto.commit.enable enable.auto.commit
        autocommit.enable enable.auto.commit
        autocommit.interval.ms auto.commit.interval.ms
        backoff.increment.ms retry.backoff.ms
        broker.list bootstrap.servers
        compression.codec compression.type
        fetch.message.max.bytes max.partition.fetch.bytes
        fetch.size max.partition.fetch.bytes
        fetch.wait.max.ms fetch.max.wait.ms
        groupid group.id
        key.serializer.class key.serializer
        message.send.max.retries retries
        metadata.broker.list bootstrap.servers
        queue.buffering.max.messages buffer.memory
        queue.buffering.max.ms linger.ms
        queue.enqueue.timeout.ms max.block.ms
        queue.time linger.ms
        refresh.leader.backoff.ms retry.backoff.ms
        request.required.acks acks
        serializer.class value.serializer
        topic.metadata.refresh.interval.ms metadata.max.age.ms
    """,
    _JAVA_BEFORE: """
        block.on.buffer.full max.block.ms
        metadata.fetch.timeout.ms max.block.ms
        timeout.ms request.timeout.ms
    """,
    _LIBRDKAFKA: """
        max.in.flight max.in.flight.requests.per.connection
        message.max.bytes max.request.size
        message.timeout.ms delivery.timeout.ms
        queue.buffering.max.kbytes buffer.memory
        queued.max.messages.kbytes fetch.buffer.max.bytes
        sasl.mechanisms sasl.mechanism
        sasl.oauthbearer.client.id sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.client.secret sasl.oauthbearer.client.credentials.client.secret
        socket.timeout.ms request.timeout.ms
        ssl.ca.location ssl.truststore.location
        ssl.ca.pem ssl.truststore.certificates
        ssl.certificate.location ssl.keystore.location
        ssl.certificate.pem ssl.keystore.certificate.chain
        ssl.key.location ssl.keystore.location
        ssl.key.pem ssl.keystore.key
    """,
    _OLD_SERVERS: """
        advertised.host.name advertised.listeners
        advertised.port advertised.listeners
        brokerid node.id
        host.name listeners
        log.cleanup.interval.mins log.retention.check.interval.ms
        log.default.flush.interval.ms log.flush.interval.ms
        log.file.size log.segment.bytes
        log.flush.interval log.flush.interval.messages
        log.message.timestamp.difference.max.ms log.message.timestamp.before.max.ms
        log.retention.size log.retention.bytes
        max.socket.request.bytes socket.request.max.bytes
        port listeners
        replica.lag.max.messages replica.lag.time.max.ms
        socket.receive.buffer socket.receive.buffer.bytes
        socket.send.buffer socket.send.buffer.bytes
    """,
    _OLD_TOPICS: """
        message.timestamp.difference.max.ms message.timestamp.before.max.ms
    """,
    _TOPICS: """
        cleanup.policy log.cleanup.policy
        delete.retention.ms log.cleaner.delete.retention.ms
        file.delete.delay.ms log.segment.delete.delay.ms
        flush.messages log.flush.interval.messages
        flush.ms log.flush.interval.ms
        index.interval.bytes log.index.interval.bytes
        max.compaction.lag.ms log.cleaner.max.compaction.lag.ms
        max.message.bytes message.max.bytes
        message.timestamp.after.max.ms log.message.timestamp.after.max.ms
        message.timestamp.before.max.ms log.message.timestamp.before.max.ms
        message.timestamp.type log.message.timestamp.type
        min.cleanable.dirty.ratio log.cleaner.min.cleanable.ratio
        min.compaction.lag.ms log.cleaner.min.compaction.lag.ms
        preallocate log.preallocate
        retention.bytes log.retention.bytes
        retention.ms log.retention.ms
        segment.bytes log.segment.bytes
        segment.index.bytes log.index.size.max.bytes
        segment.jitter.ms log.roll.jitter.ms
        segment.ms log.roll.ms
    """,
}
"""The names that Klamm has by another name, with that name, by the reason."""

_REMOVED: Final[Mapping[str, str]] = {
    _SCALA: """
        compressed.topics consumer.id dual.commit.enabled num.consumer.fetchers offsets.channel.backoff.ms
        offsets.channel.socket.timeout.ms offsets.commit.max.retries offsets.storage producer.type
        queued.max.message.chunks rebalance.backoff.ms rebalance.max.retries socket.buffersize
    """,
    _OLD_SERVERS: """
        broker.id.generation.enable control.plane.listener.name delegation.token.master.key
        inter.broker.protocol.version log.message.downconversion.enable log.message.format.version
        offsets.commit.required.acks password.encoder.cipher.algorithm password.encoder.iterations
        password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret
        password.encoder.secret reserved.broker.max.id
    """,
    _OLD_TOPICS: """
        message.downconversion.enable message.format.version
    """,
    _ZOOKEEPER: """
        enable.zookeeper zk.connectiontimeout.ms zk.sessiontimeout.ms zk.synctime.ms zookeeper.clientCnxnSocket
        zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
        zookeeper.session.timeout.ms zookeeper.set.acl zookeeper.ssl.cipher.suites zookeeper.ssl.client.enable
        zookeeper.ssl.crl.enable zookeeper.ssl.enabled.protocols zookeeper.ssl.endpoint.identification.algorithm
        zookeeper.ssl.keystore.location zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type
        zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol zookeeper.ssl.truststore.location
        zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type zookeeper.sync.time.ms
    """,
    _LIBRDKAFKA: """
        api.version.fallback.ms api.version.request api.version.request.timeout.ms batch.num.messages
        broker.address.family broker.address.ttl broker.version.fallback builtin.features
        coordinator.query.interval.ms debug delivery.report.only.error enable.auto.offset.store
        enable.gapless.guarantee enable.partition.eof enable.random.seed enable.sparse.connections
        enable.ssl.certificate.verification fetch.error.backoff.ms fetch.queue.backoff.ms
        internal.termination.signal log.connection.close log.queue log.thread.name log_level message.copy.max.bytes
        plugin.library.paths queue.buffering.backpressure.threshold queued.min.messages queuing.strategy
        socket.blocking.max.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
        statistics.interval.ms sticky.partitioning.linger.ms topic.blacklist
        topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse
    """,
    "{name} is a setting of consumers": """
        allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs enable.auto.commit
        exclude.internal.topics fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
        group.remote.assignor heartbeat.interval.ms isolation.level key.deserializer max.partition.fetch.bytes
        max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms value.deserializer
    """,
    "{name} is a setting of producers": """
        acks batch.size buffer.memory delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms
        max.in.flight.requests.per.connection max.request.size partitioner.class partitioner.ignore.keys
        partitioner.rack.aware transaction.timeout.ms transactional.id value.serializer
    """,
    "Klamm loads no classes of Java": """
        sasl.client.callback.handler.class sasl.login.class sasl.oauthbearer.jwt.retriever.class
        sasl.oauthbearer.jwt.validator.class security.providers ssl.engine.factory.class
    """,
    "Klamm has no config providers: write the values themselves into the file": """
        config.providers
    """,
    "Klamm has no share groups": """
        errors.deadletterqueue.group.enable share.acknowledgement.mode share.acquire.mode
    """,
    "Klamm has no tiered storage": """
        remote.copy.lag.bytes remote.copy.lag.ms
    """,
    "no part of Klamm reads it": """
        max.decompressed.message.bytes
    """,
    "Klamm has no two-phase commit of transactions": """
        transaction.two.phase.commit.enable
    """,
    "a client of Klamm does not check to which cluster a broker belongs": """
        metadata.cluster.check.enable
    """,
    "a client of Klamm sends its id and secret to a token server as they are": """
        sasl.oauthbearer.header.urlencode
    """,
    "a client of Klamm shows a token server its id and secret, and no assertion": """
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file
    """,
    "Klamm reads certificates from PEM files, which have no password": """
        ssl.truststore.password
    """,
}
"""The names that Klamm has by no other name, by the reason."""

_OTHERS: Final = (
    Refused("bootstrap.controllers", "a client of Klamm asks brokers only", ("bootstrap.servers",)),
    Refused(
        "ssl.keystore.password",
        "Klamm reads keys from PEM files, where the key itself is encrypted",
        ("ssl.key.password",),
    ),
    Refused("zk.connect", _ZOOKEEPER, (_CONTROLLERS, "bootstrap.servers")),
    Refused("zookeeper.connect", _ZOOKEEPER, (_CONTROLLERS, "bootstrap.servers")),
)


def advice(name: str, known: Collection[str]) -> str | None:
    """Returns what a user should do who wrote `name` for a program that has the settings `known`, and why. Returns None
    if the table does not have the name, or if its replacements are not for this program.

    The advice begins with a verb, as `write acks, because request.required.acks is a name of ...`."""
    rows = refused_names().get(name, ())
    for row in rows:
        for replacement in row.replacements:
            if replacement in known:
                return f"write {replacement}, because {row.reason}"
    return next((f"remove it, because {row.reason}" for row in rows if not row.replacements), None)


@cache
def refused_names() -> Mapping[str, Sequence[Refused]]:
    """Returns the rows of each refused name, by the name."""
    rows: dict[str, list[Refused]] = {}
    for row in _rows():
        rows.setdefault(row.name, []).append(row)
    return rows


def _rows() -> Iterator[Refused]:
    for reason, names in _REMOVED.items():
        for name in names.split():
            yield Refused(name, reason.format(name=name))
    for reason, lines in _RENAMED.items():
        for line in lines.strip().split("\n"):
            name, replacement = line.split()
            yield Refused(name, reason.format(name=name), (replacement,))
            if reason is _TOPICS:
                yield Refused(replacement, _BROKERS.format(name=replacement), (name,))
    yield from _OTHERS

"""Kafka's names of configurations that Klamm accepts although they have no effect, and the reason for each.

A configuration that was written for Kafka shall work with Klamm. So a program accepts a name that only tunes something
that Klamm does not have. A name that promises more than Klamm does is in `refused` instead.

`reason` serves every program. The names that a client accepts are here. The names that a server accepts are in
`klamm_server.config.configs_without_effect`, because a server also needs their types, defaults and update modes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

NOTHING_READS_IT: Final = "no part of Klamm reads it"
"""The reason for a name that no row of the tables matches."""

_REASONS: Final[Mapping[str, str]] = {
    "Klamm has no tiered storage": """
        follower.fetch.last.tiered.offset.enable log.local.retention.* log.remote.* remote.*
    """,
    "Klamm has no share groups": """
        errors.deadletterqueue.* group.share.* share.*
    """,
    "Klamm has no streams groups": """
        group.streams.*
    """,
    "Klamm has no delegation tokens": """
        delegation.token.*
    """,
    "Klamm has no Kerberos": """
        sasl.kerberos.*
    """,
    "Klamm has no config providers": """
        config.providers
    """,
    "Klamm has no two-phase commit of transactions": """
        transaction.two.phase.commit.enable
    """,
    "a server of Klamm handles all requests in one event loop": """
        background.threads group.coordinator.background.threads group.coordinator.threads num.io.threads
        num.network.threads
    """,
    "a server of Klamm limits the bytes of requests (queued.max.request.bytes), and not their number": """
        queued.max.requests
    """,
    "Klamm removes a request from the purgatory as soon as it has sent the response": """
        delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests
        producer.purgatory.purge.interval.requests
    """,
    "the operating system sizes the receive buffer of a connection": """
        receive.buffer.bytes replica.socket.receive.buffer.bytes socket.receive.buffer.bytes
    """,
    "the operating system sizes the send buffer of a connection": """
        send.buffer.bytes
    """,
    "Klamm limits the connections of a listener (max.connections), and not those of an address": """
        max.connections.per.ip max.connections.per.ip.overrides
    """,
    "transaction.state.log.replication.factor and min.insync.replicas decide how many replicas must have a record": """
        transaction.state.log.min.isr
    """,
    "the id of a server of Klamm is node.id": """
        broker.id
    """,
    "a controller becomes a voter only by klamm cluster add-controller": """
        controller.quorum.auto.join.enable
    """,
    "the quorum of Klamm has its own protocol, which controller.quorum.election.timeout.ms and"
    " controller.quorum.heartbeat.interval.ms tune": """
        controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms controller.quorum.fetch.*
        controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
    """,
    "a controller of Klamm keeps its metadata in RocksDB": """
        internal.metadata.* metadata.log.max.snapshot.interval.ms metadata.log.segment.* metadata.max.retention.*
    """,
    "servers of Klamm connect to each other at the listener inter.broker.listener.name, or the first gRPC listener": """
        sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol security.inter.broker.protocol
    """,
    "Klamm has no metrics reporters of Kafka's": """
        auto.include.jmx.reporter enable.metrics.push metric.reporters metrics.*
    """,
    "Klamm uses the TLS of OpenSSL, and not the TLS of Java": """
        ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    """,
    "Klamm reads keys and certificates from PEM files (ssl.key.password decrypts a key)": """
        ssl.keystore.password ssl.truststore.password
    """,
    "Klamm loads no classes of Java": """
        alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name
        principal.builder.class sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.server.callback.handler.class
        security.providers ssl.engine.factory.class
    """,
    "a client of Klamm does not check tokens, because its server does": """
        sasl.oauthbearer.allow.unverified.* sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.*
        sasl.oauthbearer.jwks.* sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    """,
    "a client of Klamm renews a token after a fixed part of its lifetime": """
        sasl.login.refresh.*
    """,
    "sasl.login.connect.timeout.ms also limits the time that each part of a response takes": """
        sasl.login.read.timeout.ms
    """,
    "a client of Klamm always connects to bootstrap.servers again if no other broker answers": """
        metadata.recovery.*
    """,
    "gRPC resolves the names of hosts": """
        bootstrap.resolve.timeout.ms client.dns.lookup
    """,
    "gRPC opens and closes the connections of a client": """
        connections.max.idle.ms
    """,
    "socket.connection.setup.timeout.ms applies to each attempt to connect": """
        socket.connection.setup.timeout.max.ms
    """,
    "Klamm's partitioner does not measure the brokers": """
        partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
    """,
    "Python allocates the memory of a producer": """
        buffer.memory.allocation.strategy
    """,
    "default.api.timeout.ms ends the retries of a call": """
        retries
    """,
}
"""The names by the reason. A name that ends with `*` stands for all names that begin so."""

_OF_SERVERS: Final[Mapping[str, str]] = {
    "servers of Klamm do not log in to each other": """
        sasl.jaas.config sasl.login.* sasl.oauthbearer.assertion.* sasl.oauthbearer.client.credentials.*
        sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
    """,
    "a server of Klamm shows its metrics to Prometheus (metrics.port)": """
        kafka.metrics.* metric.reporters metrics.* telemetry.max.bytes
    """,
    "servers of Klamm connect to each other by gRPC": """
        controller.socket.timeout.ms replica.socket.timeout.ms socket.connection.setup.timeout.*
    """,
}
"""The reasons that hold for servers only. They come before the others."""

_CLIENTS: Final = """
    retries
    auto.include.jmx.reporter bootstrap.resolve.timeout.ms client.dns.lookup connections.max.idle.ms enable.metrics.push
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms receive.buffer.bytes sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.allow.unverified.audience
    sasl.oauthbearer.allow.unverified.issuer sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    send.buffer.bytes socket.connection.setup.timeout.max.ms ssl.keymanager.algorithm ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm
"""
_PRODUCERS: Final = """
    buffer.memory.allocation.strategy metadata.max.idle.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms
"""
_CONSUMERS: Final = """
    internal.throw.on.fetch.stable.offset.unsupported throw.on.fetch.stable.offset.unsupported
"""


def reason(name: str, *, is_of_server: bool = False) -> str:
    """Returns the reason why the configuration `name` has no effect in Klamm, as the rest of a sentence after
    "because". With `is_of_server` a server was given the configuration, otherwise a client."""
    tables = (_OF_SERVERS, _REASONS) if is_of_server else (_REASONS,)
    found = (why for table in tables for why, names in table.items() if _matches(name, names.split()))
    return next(found, NOTHING_READS_IT)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in patterns)


def by_reason(names: Iterable[str], why: Callable[[str], str]) -> dict[str, list[str]]:
    """Returns the names that share a reason, by the reason that `why` gives for a name. Names and reasons keep their
    order, so that a program can tell each reason once."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(why(name), []).append(name)
    return groups


def _with_reasons(names: str) -> Mapping[str, str]:
    return {name: reason(name) for name in names.split()}


OF_CLIENTS: Final = _with_reasons(_CLIENTS)
"""The reason for each name that every client accepts without effect."""
OF_PRODUCERS: Final = _with_reasons(_PRODUCERS)
"""The reason for each further name that a producer accepts without effect."""
OF_CONSUMERS: Final = _with_reasons(_CONSUMERS)
"""The reason for each further name that a consumer accepts without effect."""

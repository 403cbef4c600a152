"""Kafka's broker configs that a broker of Klamm does not read: it accepts them, and they have no effect.

A configuration that was written for Kafka shall start a server of Klamm, and a tool that changes such a config at run
time shall not fail. So each of them has Kafka's type, default and update mode here. Only a name that Kafka does not
know either is refused, because it is probably misspelt or no longer Kafka's (`klamm.kafka_names.refused`). The facts
are those of Apache Kafka 4.3.1 and 4.4.0, internal configs included. `tests/clients/test_configs_without_effect.py`
compares the table with Kafka itself.

- A server names the configs that it was started with and that have no effect in its log, in one line for each reason.
  The reasons are those of `klamm.kafka_names.without_effect`.
- DescribeConfigs lists those that are set, and their documentation says that they have no effect. It does not list the
  others, because one of Kafka's defaults, as eight `num.io.threads`, would be false for Klamm.
- The value of a secret without effect is not stored. The metadata show only that it is set.
- Values are checked by their type only, not by Kafka's ranges.

The settings of Klamm's controllers and coordinators that are Kafka's broker configs are here, too. They have no effect
at a broker, and the log says which servers read them.

Most servers never need the table, so it is made when it is first asked for. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from klamm.kafka_names.without_effect import reason
from klamm.secret import HIDDEN
from klamm.setting import ConfigType, Setting, UpdateMode
from klamm_server.config.listener_settings import followed, listener_settings
from klamm_server.config.sasl_settings import MECHANISMS, mechanisms_of

_READ_ONLY: Final = """
alter.config.policy.class.name class null
alter.log.dirs.replication.quota.window.num int 11
alter.log.dirs.replication.quota.window.size.seconds int 1
broker.id int -1
client.quota.callback.class class null
controller.performance.always.log.threshold.ms long 2000
controller.performance.sample.period.ms long 60000
controller.quorum.append.linger.ms int 25
controller.quorum.auto.join.enable boolean false
controller.quorum.election.backoff.max.ms int 1000
controller.quorum.fetch.max.bytes int 1048576
controller.quorum.fetch.snapshot.max.bytes int 1048576
controller.quorum.fetch.timeout.ms int 2000
controller.quorum.request.timeout.ms int 2000
controller.quorum.retry.backoff.ms int 20
controller.socket.timeout.ms int 30000
create.topic.policy.class.name class null
delegation.token.expiry.check.interval.ms long 3600000
delegation.token.expiry.time.ms long 86400000
delegation.token.max.lifetime.ms long 604800000
delegation.token.secret.key password null
delete.records.purgatory.purge.interval.requests int 1
early.start.listeners list null
fetch.purgatory.purge.interval.requests int 1000
group.consumer.max.assignment.interval.ms int 15000
group.consumer.min.assignment.interval.ms int 0
group.consumer.regex.refresh.interval.ms int 600000
group.coordinator.append.linger.ms int -1
group.coordinator.background.threads int 2
group.coordinator.rebalance.protocols list classic,consumer,streams
group.coordinator.threads int 4
group.share.assignors list simple
group.share.delivery.count.limit int 5
group.share.dlq.manager.class.name string org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager
group.share.heartbeat.interval.ms int 5000
group.share.initialize.retry.interval.ms int 30000
group.share.max.assignment.interval.ms int 15000
group.share.max.delivery.count.limit int 10
group.share.max.heartbeat.interval.ms int 15000
group.share.max.partition.max.record.locks int 4000
group.share.max.record.lock.duration.ms int 60000
group.share.max.session.timeout.ms int 60000
group.share.max.share.sessions int 2000
group.share.max.size int 200
group.share.min.assignment.interval.ms int 0
group.share.min.delivery.count.limit int 2
group.share.min.heartbeat.interval.ms int 5000
group.share.min.partition.max.record.locks int 100
group.share.min.record.lock.duration.ms int 15000
group.share.min.session.timeout.ms int 45000
group.share.partition.max.record.locks int 2000
group.share.persister.class.name string org.apache.kafka.server.share.persister.DefaultStatePersister
group.share.record.lock.duration.ms int 30000
group.share.session.timeout.ms int 45000
group.streams.acceptable.recovery.lag long 10000
group.streams.assignors list sticky
group.streams.heartbeat.interval.ms int 5000
group.streams.initial.rebalance.delay.ms int 3000
group.streams.max.assignment.interval.ms int 15000
group.streams.max.heartbeat.interval.ms int 15000
group.streams.max.session.timeout.ms int 60000
group.streams.max.size int 2147483647
group.streams.max.standby.replicas int 2
group.streams.max.warmup.replicas int 20
group.streams.min.assignment.interval.ms int 0
group.streams.min.heartbeat.interval.ms int 5000
group.streams.min.session.timeout.ms int 45000
group.streams.min.task.offset.interval.ms int 15000
group.streams.num.standby.replicas int 0
group.streams.num.warmup.replicas int 2
group.streams.rack.aware.assignment.tags list ""
group.streams.session.timeout.ms int 45000
group.streams.task.offset.interval.ms int 60000
group.streams.topology.description.plugin.class class null
internal.metadata.delete.delay.millis long 60000
internal.metadata.log.segment.bytes int null
internal.metadata.max.batch.size.in.bytes int 8388608
kafka.metrics.polling.interval.secs int 10
kafka.metrics.reporters list ""
log.dir.failure.timeout.ms long 30000
log.flush.start.offset.checkpoint.interval.ms int 60000
log.initial.task.delay.ms long 30000
max.request.partition.size.limit int 2000
metadata.log.max.snapshot.interval.ms long 3600000
metadata.log.segment.bytes int 1073741824
metadata.log.segment.ms long 604800000
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
metrics.num.samples int 2
metrics.recording.level string INFO
metrics.sample.window.ms long 30000
num.replica.alter.log.dirs.threads int null
offsets.topic.compression.codec int 0
offsets.topic.segment.bytes int 104857600
producer.id.expiration.check.interval.ms int 600000
producer.purgatory.purge.interval.requests int 1000
queued.max.requests int 500
remote.log.index.file.cache.ttl.ms long 900000
remote.log.manager.copy.quota.window.num int 11
remote.log.manager.copy.quota.window.size.seconds int 1
remote.log.manager.fetch.quota.window.num int 11
remote.log.manager.fetch.quota.window.size.seconds int 1
remote.log.manager.task.interval.ms long 30000
remote.log.manager.task.retry.backoff.max.ms long 30000
remote.log.manager.task.retry.backoff.ms long 500
remote.log.manager.task.retry.jitter double 0.2
remote.log.manager.thread.pool.size int 2
remote.log.metadata.custom.metadata.max.bytes int 128
remote.log.metadata.manager.class.name string org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path string null
remote.log.metadata.manager.impl.prefix string rlmm.config.
remote.log.metadata.manager.listener.name string null
remote.log.reader.max.pending.tasks int 100
remote.log.storage.manager.class.name string null
remote.log.storage.manager.class.path string null
remote.log.storage.manager.impl.prefix string rsm.config.
remote.log.storage.system.enable boolean false
replica.socket.receive.buffer.bytes int 65536
replica.socket.timeout.ms int 30000
replication.quota.window.num int 11
replication.quota.window.size.seconds int 1
sasl.client.callback.handler.class class null
sasl.login.callback.handler.class class null
sasl.login.class class null
sasl.login.connect.timeout.ms int null
sasl.login.read.timeout.ms int null
sasl.login.retry.backoff.max.ms long 10000
sasl.login.retry.backoff.ms long 100
sasl.mechanism.controller.protocol string GSSAPI
sasl.oauthbearer.assertion.algorithm string RS256
sasl.oauthbearer.assertion.claim.aud string null
sasl.oauthbearer.assertion.claim.exp.seconds int 300
sasl.oauthbearer.assertion.claim.iss string null
sasl.oauthbearer.assertion.claim.jti.include boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60
sasl.oauthbearer.assertion.claim.sub string null
sasl.oauthbearer.assertion.file string null
sasl.oauthbearer.assertion.private.key.file string null
sasl.oauthbearer.assertion.private.key.passphrase password null
sasl.oauthbearer.assertion.template.file string null
sasl.oauthbearer.client.credentials.client.id string null
sasl.oauthbearer.client.credentials.client.secret password null
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope string null
sasl.oauthbearer.token.endpoint.url string null
sasl.server.callback.handler.class class null
security.inter.broker.protocol string PLAINTEXT
security.providers string null
server.max.startup.time.ms long 9223372036854775807
share.coordinator.append.linger.ms int -1
share.coordinator.cold.partition.snapshot.interval.ms int 300000
share.coordinator.load.buffer.size int 5242880
share.coordinator.snapshot.update.records.per.snapshot int 500
share.coordinator.state.topic.compression.codec int 0
share.coordinator.state.topic.min.isr short 2
share.coordinator.state.topic.num.partitions int 50
share.coordinator.state.topic.prune.interval.ms int 300000
share.coordinator.state.topic.replication.factor short 3
share.coordinator.state.topic.segment.bytes int 104857600
share.coordinator.threads int 1
share.coordinator.write.timeout.ms int 5000
share.fetch.purgatory.purge.interval.requests int 1000
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
socket.listen.backlog.size int 50
socket.receive.buffer.bytes int 102400
ssl.keystore.password password null
ssl.truststore.password password null
telemetry.max.bytes int 1048576
transaction.state.log.min.isr int 2
transaction.state.log.segment.bytes int 104857600
transaction.two.phase.commit.enable boolean false
unclean.leader.election.interval.ms long 300000
unstable.api.versions.enable boolean false
unstable.feature.versions.enable boolean false
"""  # noqa: E501 - one default is the name of a class
"""The read-only configs: name, type and default. In Kafka, the passwords of stores change at run time only for a single
listener."""
_PER_BROKER: Final = """
cordoned.log.dirs list ""
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
sasl.jaas.config password null
sasl.kerberos.kinit.cmd string /usr/bin/kinit
sasl.kerberos.min.time.before.relogin long 60000
sasl.kerberos.principal.to.local.rules list DEFAULT
sasl.kerberos.service.name string null
sasl.kerberos.ticket.renew.jitter double 0.05
sasl.kerberos.ticket.renew.window.factor double 0.8
sasl.login.refresh.buffer.seconds short 300
sasl.login.refresh.min.period.seconds short 60
sasl.login.refresh.window.factor double 0.8
sasl.login.refresh.window.jitter double 0.05
sasl.mechanism.inter.broker.protocol string GSSAPI
ssl.engine.factory.class class null
ssl.keymanager.algorithm string SunX509
ssl.protocol string TLSv1.3
ssl.provider string null
ssl.secure.random.implementation string null
ssl.trustmanager.algorithm string PKIX
"""
_CLUSTER_WIDE: Final = """
background.threads int 10
config.providers list ""
errors.deadletterqueue.auto.create.topics.enable boolean false
errors.deadletterqueue.topic.name.prefix string dlq.
follower.fetch.last.tiered.offset.enable boolean false
group.consumer.assignment.interval.ms int 1000
group.consumer.assignor.offload.enable boolean true
group.coordinator.cached.buffer.max.bytes int 1048588
group.share.assignment.interval.ms int 1000
group.share.assignor.offload.enable boolean true
group.streams.assignment.interval.ms int 1000
group.streams.assignor.offload.enable boolean true
log.local.retention.bytes long -2
log.local.retention.ms long -2
log.remote.copy.lag.bytes long -1
log.remote.copy.lag.ms long 0
max.connections.per.ip int 2147483647
max.connections.per.ip.overrides string ""
metric.reporters list org.apache.kafka.common.metrics.JmxReporter
num.io.threads int 8
num.network.threads int 3
remote.fetch.max.wait.ms int 500
remote.list.offsets.request.timeout.ms long 30000
remote.log.index.file.cache.total.size.bytes long 1073741824
remote.log.manager.copier.thread.pool.size int 10
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807
remote.log.manager.expiration.thread.pool.size int 10
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807
remote.log.manager.follower.thread.pool.size int 2
remote.log.reader.threads int 10
share.coordinator.cached.buffer.max.bytes int 1048588
transaction.partition.verification.enable boolean true
"""
_OF_CONTROLLERS: Final = """
auto.leader.rebalance.enable boolean true
controller.quorum.election.timeout.ms int 1000
controller.quorum.voters list ""
controller.quota.window.num int 11
controller.quota.window.size.seconds int 1
leader.imbalance.check.interval.seconds long 300
metadata.log.dir string null
metadata.log.max.record.bytes.between.snapshots long 20971520
metadata.max.idle.interval.ms int 500
transaction.state.log.num.partitions int 50
transaction.state.log.replication.factor short 3
"""
_OF_COORDINATORS: Final = """
group.consumer.assignors list uniform,range
group.consumer.heartbeat.interval.ms int 5000
group.consumer.max.heartbeat.interval.ms int 15000
group.consumer.max.session.timeout.ms int 60000
group.consumer.max.size int 2147483647
group.consumer.migration.policy string bidirectional
group.consumer.min.heartbeat.interval.ms int 5000
group.consumer.min.session.timeout.ms int 45000
group.consumer.session.timeout.ms int 45000
group.initial.rebalance.delay.ms int 3000
group.max.session.timeout.ms int 1800000
group.max.size int 2147483647
group.min.session.timeout.ms int 6000
offset.metadata.max.bytes int 4096
offsets.commit.timeout.ms int 5000
offsets.load.buffer.size int 5242880
offsets.retention.check.interval.ms long 600000
offsets.retention.minutes int 10080
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000
transaction.max.timeout.ms int 900000
transaction.remove.expired.transaction.cleanup.interval.ms int 3600000
transaction.state.log.load.buffer.size int 5242880
transactional.id.expiration.ms int 604800000
"""
SINCE_4_4: Final = frozenset(
    {
        "errors.deadletterqueue.auto.create.topics.enable",
        "errors.deadletterqueue.topic.name.prefix",
        "group.consumer.assignor.offload.enable",
        "group.share.assignor.offload.enable",
        "group.share.dlq.manager.class.name",
        "group.streams.acceptable.recovery.lag",
        "group.streams.assignor.offload.enable",
        "group.streams.assignors",
        "group.streams.max.warmup.replicas",
        "group.streams.min.task.offset.interval.ms",
        "group.streams.num.warmup.replicas",
        "group.streams.rack.aware.assignment.tags",
        "group.streams.task.offset.interval.ms",
        "group.streams.topology.description.plugin.class",
        "log.remote.copy.lag.bytes",
        "log.remote.copy.lag.ms",
    }
)
"""The configs that Kafka has since version 4.4."""
_AT_LISTENERS: Final = ("num.network.threads", "principal.builder.class", "sasl.", "ssl.")
"""The beginnings of config names that may have a value for one listener in Kafka."""

_DIRECTORIES: Final = ("log.dir", "log.dirs")
"""The settings of log dirs. In Kafka, a controller without `metadata.log.dir` also keeps its log in one of them."""


@cache
def configs_without_effect() -> Mapping[str, Setting]:
    """Returns each config that a broker accepts without effect, by name."""
    settings = (
        *_settings(_READ_ONLY, UpdateMode.READ_ONLY),
        *_settings(_PER_BROKER, UpdateMode.PER_BROKER),
        *_settings(_CLUSTER_WIDE, UpdateMode.CLUSTER_WIDE),
        *_settings(_OF_CONTROLLERS, UpdateMode.READ_ONLY, read_by="controllers"),
        *_settings(_OF_COORDINATORS, UpdateMode.READ_ONLY, read_by="coordinators"),
    )
    return {setting.name: setting for setting in settings}


def accepted_without_effect(known: Collection[str], listeners: Iterable[str]) -> dict[str, Setting]:
    """Returns the configs that a server with the settings `known` accepts without effect, by name. This includes the
    configs of its `listeners`."""
    others = {name: setting for name, setting in configs_without_effect().items() if name not in known}
    return others | listener_settings(others, listeners)


def stored_text(name: str, text: str) -> str:
    """Returns the value of a broker's config that the metadata keep. It is empty for a secret without effect."""
    setting = configs_without_effect().get(name)
    return text if setting is None or not setting.sensitive else HIDDEN


def reason_of(setting: Setting) -> str:
    """Returns the reason why the config has no effect, as the rest of a sentence after "because"."""
    if setting.name in _DIRECTORIES:
        return "they are the directories of a broker, and metadata.log.dir is the directory of a controller"
    if setting.read_by:
        return f"the {setting.read_by} read them"
    return reason(followed(setting.name) or setting.name, is_of_server=True)


def _settings(rows: str, update_mode: UpdateMode, read_by: str = "") -> Iterator[Setting]:
    for row in rows.split("\n")[1:-1]:
        name, type_name, default = row.split(" ")
        type_ = ConfigType(type_name.upper())
        setting = Setting(
            type=type_,
            default=None,
            documentation=_documentation(name, read_by),
            name=name,
            convert=str if type_ is ConfigType.CLASS else None,
            update_mode=update_mode,
            read_by=read_by,
            sensitive=type_ is ConfigType.PASSWORD,
            per_listener=name.startswith(_AT_LISTENERS),
            mechanisms=mechanisms_of(name) or (MECHANISMS if name.startswith("sasl.") else ()),
        )
        yield setting if default == "null" else setting._replace(default=setting.parse(default.strip('"')))


def _documentation(name: str, read_by: str) -> str:
    if read_by:
        return f"Kafka's setting. A broker accepts it, and it has no effect there, because the {read_by} read it."
    return (
        f"Kafka's setting. Klamm accepts it, and it has no effect in Klamm, because {reason(name, is_of_server=True)}."
    )

"""Tests the config table against Kafka's documentation (4.x, "Topic Configs" and "Broker Configs")."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.setting import ConfigType, UpdateMode, render
from klamm.wire.v1.controller_pb2 import (
    CONFIG_SOURCE_DEFAULT,
    CONFIG_SOURCE_DYNAMIC_BROKER,
    CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER,
    CONFIG_SOURCE_DYNAMIC_TOPIC,
    CONFIG_SOURCE_STATIC_BROKER,
)
from klamm_server.config.broker_configs import BROKER_CONFIGS
from klamm_server.config.config_defs import (
    append_to_list,
    effective_topic_configs,
    normal_text,
    parse,
    resolve_broker_config,
    resolve_topic_config,
    subtract_from_list,
    validate_broker_configs,
    validate_topic_configs,
)
from klamm_server.config.topic_configs import SYNONYMS, TOPIC_CONFIGS

InvalidConfigError = EXCEPTIONS[ErrorCode.INVALID_CONFIG]
InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]

KAFKA_TOPIC_CONFIGS = """
cleanup.policy                          list     delete               log.cleanup.policy
compression.gzip.level                  int      -1                   compression.gzip.level
compression.lz4.level                   int      9                    compression.lz4.level
compression.type                        string   producer             compression.type
compression.zstd.level                  int      3                    compression.zstd.level
delete.retention.ms                     long     86400000             log.cleaner.delete.retention.ms
errors.deadletterqueue.group.enable     boolean  false                null
file.delete.delay.ms                    long     60000                log.segment.delete.delay.ms
flush.messages                          long     9223372036854775807  log.flush.interval.messages
flush.ms                                long     9223372036854775807  log.flush.interval.ms
follower.replication.throttled.replicas list     ""                   null
index.interval.bytes                    int      4096                 log.index.interval.bytes
leader.replication.throttled.replicas   list     ""                   null
local.retention.bytes                   long     -2                   null
local.retention.ms                      long     -2                   null
max.compaction.lag.ms                   long     9223372036854775807  log.cleaner.max.compaction.lag.ms
max.decompressed.message.bytes          int      2147483639           max.decompressed.message.bytes
max.message.bytes                       int      1048588              message.max.bytes
message.timestamp.after.max.ms          long     3600000              log.message.timestamp.after.max.ms
message.timestamp.before.max.ms         long     9223372036854775807  log.message.timestamp.before.max.ms
message.timestamp.type                  string   CreateTime           log.message.timestamp.type
min.cleanable.dirty.ratio               double   0.5                  log.cleaner.min.cleanable.ratio
min.compaction.lag.ms                   long     0                    log.cleaner.min.compaction.lag.ms
min.insync.replicas                     int      1                    min.insync.replicas
preallocate                             boolean  false                log.preallocate
remote.copy.lag.bytes                   long     -1                   null
remote.copy.lag.ms                      long     0                    null
remote.log.copy.disable                 boolean  false                null
remote.log.delete.on.disable            boolean  false                null
remote.storage.enable                   boolean  false                null
retention.bytes                         long     -1                   log.retention.bytes
retention.ms                            long     604800000            log.retention.ms
segment.bytes                           int      1073741824           log.segment.bytes
segment.index.bytes                     int      10485760             log.index.size.max.bytes
segment.jitter.ms                       long     0                    log.roll.jitter.ms
segment.ms                              long     604800000            log.roll.ms
unclean.leader.election.enable          boolean  false                unclean.leader.election.enable
"""
"""Name, type, default and "server default property" of every topic config."""

KAFKA_BROKER_DEFAULTS = """
auto.create.topics.enable                      boolean  true
broker.heartbeat.interval.ms                   int      2000
broker.rack                                    string   null
broker.session.timeout.ms                      int      9000
controlled.shutdown.enable                     boolean  true
default.replication.factor                     int      1
delete.topic.enable                            boolean  true
fetch.max.bytes                                int      57671680
initial.broker.registration.timeout.ms         int      60000
log.dirs                                       list     null
log.flush.interval.ms                          long     null
log.flush.offset.checkpoint.interval.ms        int      60000
log.flush.scheduler.interval.ms                long     9223372036854775807
log.retention.check.interval.ms                long     300000
log.retention.hours                            int      168
log.retention.minutes                          int      null
log.retention.ms                               long     null
log.roll.hours                                 int      168
log.roll.jitter.hours                          int      0
log.roll.jitter.ms                             long     null
log.roll.ms                                    long     null
log.segment.bytes                              int      1073741824
message.max.bytes                              int      1048588
num.partitions                                 int      1
num.recovery.threads.per.data.dir              int      2
offsets.topic.num.partitions                   int      50
offsets.topic.replication.factor               int      3
socket.request.max.bytes                       int      104857600
"""


def _rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


ONLY_IN_A_KIP = {"unclean.recovery.strategy"}
"""KIP-966 names it; Kafka 4.4 does not have it yet."""


ONLY_HERE = {"retention.hold.groups", "retention.hold.max.ms", "retention.hold.max.bytes"}


def test_every_topic_config_of_kafka_is_there_and_no_other() -> None:
    assert TOPIC_CONFIGS.keys() - ONLY_IN_A_KIP - ONLY_HERE == {row[0] for row in _rows(KAFKA_TOPIC_CONFIGS)}


@pytest.mark.parametrize(("name", "type_", "default", "broker_name"), _rows(KAFKA_TOPIC_CONFIGS))
def test_topic_config_is_as_kafka_documents_it(name: str, type_: str, default: str, broker_name: str) -> None:
    definition = TOPIC_CONFIGS[name]
    assert definition.type.value == type_.upper()
    assert definition.default_text() == default.strip('"')
    assert (SYNONYMS[name][0].name if name in SYNONYMS else "null") == broker_name


@pytest.mark.parametrize(("name", "type_", "default"), _rows(KAFKA_BROKER_DEFAULTS))
def test_broker_config_is_as_kafka_documents_it(name: str, type_: str, default: str) -> None:
    definition = BROKER_CONFIGS[name]
    assert definition.type.value == type_.upper()
    assert (definition.default_text() or "null") == default


def test_every_config_has_its_name_its_documentation_and_a_valid_default() -> None:
    for name, definition in [*TOPIC_CONFIGS.items(), *BROKER_CONFIGS.items()]:
        assert definition.name == name
        assert definition.documentation.endswith(".")
        if definition.has_default:
            assert definition.parse(definition.default_text()) == definition.default


def test_every_synonym_is_a_broker_config() -> None:
    assert {synonym.name for synonyms in SYNONYMS.values() for synonym in synonyms} <= BROKER_CONFIGS.keys()


KAFKA_DYNAMIC = {
    "follower.replication.throttled.rate": "cluster-wide",
    "leader.replication.throttled.rate": "cluster-wide",
    "log.cleaner.backoff.ms": "cluster-wide",
    "log.cleaner.dedupe.buffer.size": "cluster-wide",
    "log.cleaner.io.buffer.load.factor": "cluster-wide",
    "log.cleaner.io.buffer.size": "cluster-wide",
    "log.cleaner.io.max.bytes.per.second": "cluster-wide",
    "log.cleaner.threads": "cluster-wide",
    "max.connection.creation.rate": "cluster-wide",
    "max.connections": "cluster-wide",
    "num.recovery.threads.per.data.dir": "cluster-wide",
    "num.replica.fetchers": "cluster-wide",
    "producer.id.expiration.ms": "cluster-wide",
    "replica.alter.log.dirs.io.max.bytes.per.second": "cluster-wide",
}
"""DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS of 4.3.1 and its update modes, of the settings that are here, without the
defaults of topics. `listeners` and `listener.security.protocol.map` are left to the file."""
OWN_DYNAMIC = {"log.scrub.bytes.per.second", "log.scrub.interval.ms"}


def test_the_update_modes_of_broker_configs_are_kafkas() -> None:
    first_synonyms = {synonyms[0].name for synonyms in SYNONYMS.values()}
    modes = {
        mode.value: {name for name, setting in BROKER_CONFIGS.items() if setting.update_mode is mode}
        for mode in UpdateMode
    }
    assert modes["cluster-wide"] == first_synonyms | KAFKA_DYNAMIC.keys() | OWN_DYNAMIC
    assert not modes["per-broker"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 5 ", 5),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("compression.gzip.level", "9", 9),
        ("compression.zstd.level", "-131072", -131072),
        ("log.retention.hours", "24", 24),
        ("segment.bytes", "1048576", 1048576),
    ],
)
def test_a_config_text_is_parsed_by_its_type(name: str, text: str, value: object) -> None:
    assert parse(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "soon", "a whole number of 64 bits"),
        ("retention.ms", "1_000", "a whole number of 64 bits"),
        ("retention.ms", "9223372036854775808", "a whole number of 64 bits"),
        ("segment.bytes", "2147483648", "a whole number of 32 bits"),
        ("segment.bytes", "1048575", "at least 1048576"),
        ("segment.ms", "0", "at least 1"),
        ("preallocate", "yes", "true or false"),
        ("min.cleanable.dirty.ratio", "1.1", "0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number"),
        ("cleanup.policy", "archive", "a list of delete, compact"),
        ("cleanup.policy", "delete,delete", "a list of delete, compact, none of them twice"),
        ("cleanup.policy", "delete,,compact", "items separated by commas"),
        ("compression.type", "brotli", "one of producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("compression.gzip.level", "0", "-1 or 1 to 9"),
        ("compression.lz4.level", "18", "1 to 17"),
        ("compression.zstd.level", "23", "-131072 to 22"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("min.insync.replicas", "0", "at least 1"),
        ("leader.replication.throttled.replicas", "0-1", "* or a list of partition:broker"),
        ("remote.storage.enable", "true", "false"),
        ("errors.deadletterqueue.group.enable", "true", "false: there are no share groups"),
        ("max.decompressed.message.bytes", "0", "at least 1"),
        ("remote.copy.lag.ms", "-2", "at least -1"),
        ("log.retention.hours", "0", "-1 or at least 1"),
    ],
)
def test_a_bad_value_is_refused_by_name_value_and_expectation(name: str, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse(name, text)
    assert f"{name}: {text!r} is not valid, expected {expected}" in str(caught.value)


def test_an_unknown_name_and_a_broker_config_are_refused_as_topic_configs() -> None:
    with pytest.raises(InvalidConfigError, match=r"unknown config retention\.sec"):
        parse("retention.sec", "1")
    with pytest.raises(InvalidConfigError, match=r"unknown config log\.dirs"):
        validate_topic_configs({"log.dirs": "/data"})


@given(st.sampled_from(sorted(TOPIC_CONFIGS)), st.text(max_size=20))
def test_text_is_either_refused_or_survives_a_round_trip(name: str, text: str) -> None:
    try:
        value = parse(name, text)
    except InvalidConfigError:
        return
    assert parse(name, render(value)) == value


def test_configs_of_a_topic_must_fit_together() -> None:
    validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms=6 is greater"):
        validate_topic_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


HOLD = {"retention.hold.groups": "billing,audit"}


def test_a_hold_may_not_end_before_retention() -> None:
    validate_topic_configs({**HOLD, "retention.ms": "5", "retention.hold.max.ms": "5"})
    validate_topic_configs({**HOLD, "retention.ms": "5", "retention.hold.max.ms": "-1"})
    validate_topic_configs({**HOLD, "retention.ms": "-1", "retention.hold.max.ms": "5"})
    with pytest.raises(
        InvalidConfigError,
        match=r"retention\.hold\.max\.ms=4 is less than retention\.ms=5: expected at least 5, or -1 for no limit",
    ):
        validate_topic_configs({**HOLD, "retention.ms": "5", "retention.hold.max.ms": "4"})
    with pytest.raises(InvalidConfigError, match=r"retention\.hold\.max\.ms=1209600000 is less than retention\.ms="):
        validate_topic_configs({**HOLD, "retention.ms": "2592000000"})
    with pytest.raises(InvalidConfigError, match=r"retention\.hold\.max\.bytes=9 is less than retention\.bytes=10"):
        validate_topic_configs({**HOLD, "retention.bytes": "10", "retention.hold.max.bytes": "9"})
    validate_topic_configs({"retention.ms": "2592000000"})  # without a hold, its bounds do not count
    validate_topic_configs({**HOLD, "retention.hold.max.ms": "4"})  # the brokers may have a smaller log.retention.ms


def test_a_hold_names_few_groups() -> None:
    assert parse("retention.hold.groups", "*") == ("*",)
    assert parse("retention.hold.groups", "billing, *") == ("billing", "*")
    for text in ("a,a", ",".join(map(str, range(101))), "a,,b"):
        with pytest.raises(InvalidConfigError, match=r"retention\.hold\.groups"):
            parse("retention.hold.groups", text)


def test_read_only_broker_configs_cannot_be_set_at_run_time() -> None:
    validate_broker_configs({"log.retention.ms": "5"}, all_brokers=True)
    with pytest.raises(InvalidRequestError, match=r"num\.partitions is read-only"):
        validate_broker_configs({"num.partitions": "5"}, all_brokers=False)


@pytest.mark.parametrize(
    ("layers", "value", "source"),
    [
        ([{}, {}, {}], "604800000", CONFIG_SOURCE_DEFAULT),
        ([{}, {}, {"log.retention.hours": "2"}], "7200000", CONFIG_SOURCE_STATIC_BROKER),
        ([{}, {}, {"log.retention.hours": "2", "log.retention.minutes": "3"}], "180000", CONFIG_SOURCE_STATIC_BROKER),
        ([{}, {}, {"log.retention.hours": "-1"}], "-1", CONFIG_SOURCE_STATIC_BROKER),
        (
            [{}, {"log.retention.ms": "9"}, {"log.retention.minutes": "3"}],
            "9",
            CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER,
        ),
        ([{"log.retention.ms": "8"}, {"log.retention.ms": "9"}, {}], "8", CONFIG_SOURCE_DYNAMIC_BROKER),
    ],
)
def test_a_topic_config_inherits_the_broker_value_with_the_highest_precedence(
    layers: list[dict[str, str]], value: str, source: int
) -> None:
    sources = [CONFIG_SOURCE_DYNAMIC_BROKER, CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER, CONFIG_SOURCE_STATIC_BROKER]
    numbered = list(zip(sources, layers, strict=True))
    assert resolve_topic_config("retention.ms", {}, numbered) == (value, source)
    assert effective_topic_configs({}, *layers)["retention.ms"] == value
    own = {"retention.ms": "1"}
    assert resolve_topic_config("retention.ms", own, numbered) == ("1", CONFIG_SOURCE_DYNAMIC_TOPIC)


def test_a_topic_config_without_synonym_has_only_its_own_value_and_the_default() -> None:
    layers = [(CONFIG_SOURCE_STATIC_BROKER, {"local.retention.ms": "5"})]
    assert resolve_topic_config("local.retention.ms", {}, layers) == ("-2", CONFIG_SOURCE_DEFAULT)


def test_a_broker_config_is_resolved_by_its_own_name_only() -> None:
    layers = [
        (CONFIG_SOURCE_DYNAMIC_BROKER, {}),
        (CONFIG_SOURCE_STATIC_BROKER, {"message.max.bytes": "7", "log.retention.hours": "1"}),
    ]
    assert resolve_broker_config("message.max.bytes", layers) == ("7", CONFIG_SOURCE_STATIC_BROKER)
    assert resolve_broker_config("log.retention.ms", layers) == ("", CONFIG_SOURCE_DEFAULT)
    assert resolve_broker_config("num.partitions", layers) == ("1", CONFIG_SOURCE_DEFAULT)


def test_effective_configs_of_a_topic_are_complete_and_valid() -> None:
    effective = effective_topic_configs({"segment.ms": "5"}, {"message.max.bytes": "77"})
    assert effective.keys() == TOPIC_CONFIGS.keys()
    assert effective["segment.ms"] == "5"
    assert effective["max.message.bytes"] == "77"
    validate_topic_configs(effective)


def test_a_list_config_can_be_appended_and_subtracted_by_item() -> None:
    assert append_to_list("cleanup.policy", "delete", "compact,delete") == "delete,compact"
    assert append_to_list("cleanup.policy", "", "compact") == "compact"
    assert subtract_from_list("cleanup.policy", "delete, compact", "delete,other") == "compact"
    assert subtract_from_list("cleanup.policy", "delete", "delete") == ""
    with pytest.raises(InvalidConfigError, match=r"retention\.ms is a LONG, not a LIST"):
        append_to_list("retention.ms", "1", "2")
    with pytest.raises(InvalidConfigError, match=r"cleanup\.policy: 'a,,b'"):
        subtract_from_list("cleanup.policy", "delete", "a,,b")


@pytest.mark.parametrize(
    ("name", "text", "normal"),
    [
        ("cleanup.policy", " delete , compact ", "delete,compact"),
        ("cleanup.policy", "delete,delete", "delete"),
        ("cleanup.policy", " ", ""),
        ("cleanup.policy", "delete,,compact", "delete,,compact"),
        ("leader.replication.throttled.replicas", "0:1 , 1:2", "0:1,1:2"),
        ("retention.ms", " 5000 ", "5000"),
        ("compression.type", " gzip", "gzip"),
        ("log.cleanup.policy", "compact , delete", "compact,delete"),
        ("ssl.key.password", " secret ", " secret "),
        ("unknown", " a , b ", " a , b "),
    ],
)
def test_the_text_of_a_config_is_stored_as_kafka_shows_it(name: str, text: str, normal: str) -> None:
    """Apache Kafka 4.4 answers DescribeConfigs with these texts."""
    assert normal_text(name, text) == normal


def test_types_are_spelled_as_kafka_does() -> None:
    assert {kind.name for kind in ConfigType} == {kind.value for kind in ConfigType}

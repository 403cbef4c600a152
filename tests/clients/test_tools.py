"""The command-line tools that come with Kafka, as an operator calls them, against the Kafka listener."""

from __future__ import annotations

import subprocess

import pytest

from tests.clients import scenarios, version_scenarios
from tests.support import java_programs
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess

TIMEOUT_S = 120
TOOLS = "org.apache.kafka.tools"

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(600),
    pytest.mark.behaviour("Kafka's command-line tools", "topics, console producer and consumer, groups, quorum, ..."),
]


def tool(name: str, *arguments: str, given: str | None = None) -> str:
    """Returns the output of the tool."""
    run = subprocess.run(
        java_programs.command(f"{TOOLS}.{name}", *arguments),
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_kafkas_tools_create_fill_read_describe_and_delete_a_topic(bootstrap: str, name: str) -> None:
    at = ["--bootstrap-server", bootstrap]
    tool("TopicCommand", *at, "--create", "--topic", name, "--partitions", "2", "--config", "segment.ms=71234")
    assert "segment.ms=71234" in tool("TopicCommand", *at, "--describe", "--topic", name)
    lines = [f"line {number}" for number in range(50)]
    tool("ConsoleProducer", *at, "--topic", name, given="".join(f"{line}\n" for line in lines))
    end = ["--from-beginning", "--max-messages", "50", "--timeout-ms", "30000", "--group", name]
    read = tool("consumer.ConsoleConsumer", *at, "--topic", name, *end)
    assert sorted(read.splitlines()) == sorted(lines)
    ends = tool("GetOffsetShell", *at, "--topic", name)
    assert sum(int(line.split(":")[2]) for line in ends.splitlines()) == 50
    assert name in tool("LogDirsCommand", *at, "--describe", "--topic-list", name)
    described = tool("consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", name)
    assert name in described
    tool("consumer.group.ConsumerGroupCommand", *at, "--delete", "--group", name)
    tool("TopicCommand", *at, "--delete", "--topic", name)


def test_kafka_configs_changes_broker_configs_and_shows_their_sources(bootstrap: str) -> None:
    """kafka-configs.sh changes settings of brokers at run time, and shows the source of each value."""

    def configs(*arguments: str) -> str:
        at = ["--bootstrap-server", bootstrap, "--entity-type", "brokers"]
        return tool("ConfigCommand", *at, *arguments)

    one, every = ["--entity-name", "1"], ["--entity-default"]
    assert "Completed updating config for broker 1." in configs(
        *one, "--alter", "--add-config", "log.cleaner.threads=2,log.cleaner.backoff.ms=16000"
    )
    configs(*every, "--alter", "--add-config", "log.cleaner.backoff.ms=17000")
    try:
        assert (
            "log.cleaner.backoff.ms=16000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=16000,"
            " DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=17000, DEFAULT_CONFIG:log.cleaner.backoff.ms=15000}"
        ) in configs(*one, "--describe")
        assert "log.cleaner.backoff.ms=17000 sensitive=false" in configs(*every, "--describe")
    finally:
        configs(*one, "--alter", "--delete-config", "log.cleaner.threads,log.cleaner.backoff.ms")
        configs(*every, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    assert "log.cleaner" not in configs(*one, "--describe")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["MetadataQuorumCommand", "describe", "--status"], "LeaderId:"),
        (["MetadataQuorumCommand", "describe", "--replication"], "Leader"),
        (["FeatureCommand", "describe"], "FinalizedVersionLevel: 4.4-IV2"),
        (["FeatureCommand", "upgrade", "--feature", "transaction.version=2"], "transaction.version was upgraded to 2."),
        (["BrokerApiVersionsCommand"], "DescribeTopicPartitions(75)"),
        (["ClusterTool", "list-endpoints"], "127.0.0.1"),
        (["GroupsCommand", "--list"], ""),
        (["TransactionsCommand", "list"], "TransactionalId"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_kafkas_tools_show_the_cluster(bootstrap: str, command: list[str], expected: str) -> None:
    name, *arguments = command
    position = 1 if name == "ClusterTool" else 0
    arguments[position:position] = ["--bootstrap-server", bootstrap]
    assert expected in tool(name, *arguments)


def test_kafka_transactions_aborts_a_hanging_transaction(klamm_node: KlammProcess, name: str) -> None:
    at = ["--bootstrap-server", klamm_node.kafka_bootstrap]
    with KafkaWire(klamm_node.kafka_bootstrap) as wire:
        topic_id = scenarios.create_topic(wire, name)
        producer = version_scenarios.init(wire, name)
        records = version_scenarios.records(producer)
        version_scenarios.produce(wire, 13, topic_id, transactional_id=name, data=records)
        assert version_scenarios.stable_end(wire, name) == 0
        tool("TransactionsCommand", *at, "abort", "--topic", name, "--partition", "0", "--start-offset", "0")
        assert version_scenarios.stable_end(wire, name) == 4


def test_kafka_features_cannot_downgrade_transaction_version(bootstrap: str) -> None:
    at = ["--bootstrap-server", bootstrap]
    with pytest.raises(AssertionError, match="only supports version 2"):
        tool("FeatureCommand", *at, "downgrade", "--feature", "transaction.version=1")

"""The command `klamm` itself: its version, its help, wrong usage, and the server that it connects to."""

from __future__ import annotations

import socket

import pytest

from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster

USAGE, UNREACHABLE = 2, 3

pytestmark = pytest.mark.usefixtures("klamm")
"""Starts the shared cluster before the check of leftovers, which must not find it."""


def test_the_version_option_prints_the_version(klamm):
    assert klamm.ok("--version").out.startswith("klamm ")


@pytest.mark.parametrize("group", [(), ("topics",), ("configs",), ("groups",)])
def test_without_a_command_the_help_is_shown_and_the_status_is_usage(klamm, group):
    ended = klamm(*group)
    assert ended.status == USAGE
    assert "Commands" in ended.out
    assert ended.err == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("frobnicate",), "No such command 'frobnicate'"),
        (("topics", "create"), "Missing argument"),
        (("consume", "x", "--frobnicate"), "No such option: --frobnicate"),
        (("consume", "x", "--count", "0"), "'--count'"),
        (("consume", "x", "--count", "many"), "'--count'"),
        (("consume", "x", "--timeout", "0"), "'--timeout'"),
        (("up", "--port", "70000"), "--port: '70000' is not valid, expected a number from 0 to 65535"),
        (("up", "--brokers", "all"), "--brokers: 'all' is not valid, expected a number from 1 to 32, or auto"),
        (("up", "--brokers", "many"), "--brokers: 'many'"),
        (("up", "--frobnicate"), "--frobnicate"),
    ],
)
def test_a_wrong_command_line_prints_one_line_with_a_hint_to_the_help(klamm, arguments, complaint):
    line = klamm.refused(USAGE, *arguments)
    assert complaint in line
    assert "--help`)" in line


def test_the_error_for_a_kafka_listener_names_the_grpc_listener(tmp_path):
    with running_cluster(tmp_path) as cluster:
        line = KlammCommand(cluster.kafka_bootstrap).refused(UNREACHABLE, "topics", "list", "--timeout", "1")
    assert line == (
        f"klamm: {cluster.kafka_bootstrap} is for others: this is a Kafka listener of Klamm;"
        f" clients of the gRPC API connect to {cluster.bootstrap}"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("topics", "create", "x"),
        ("groups", "describe", "x"),
        ("configs", "describe", "--all-brokers"),
        ("cluster",),
        ("cluster", "quorum"),
        ("consume", "x"),
        ("produce", "x"),
    ],
)
def test_a_command_without_an_answer_names_the_address_and_the_timeout(klamm, arguments):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        line = klamm.refused(UNREACHABLE, *arguments, "--bootstrap", address, "--timeout", "0.3")
    assert f"no server answers at {address} (no answer in 0.3 s)" in line
    assert "klamm up" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("-b", "{}", "topics", "list"),
        ("--bootstrap", "{}", "topics", "list"),
        ("topics", "-b", "{}", "list"),
        ("topics", "list", "-b", "{}"),
        ("-b", "127.0.0.1:1", "topics", "list", "-b", "{}"),
        ("-b", "{}", "cluster"),
        ("cluster", "--bootstrap", "{}", "quorum"),
        ("-b", "{}", "groups", "list"),
    ],
)
def test_the_server_may_be_named_before_the_command(klamm, arguments):
    elsewhere = KlammCommand("127.0.0.1:1")
    assert elsewhere(*(argument.format(klamm.bootstrap) for argument in arguments)).status == 0


def test_a_malformed_bootstrap_is_refused(klamm):
    assert "expected host:port" in klamm.refused(USAGE, "topics", "list", "--bootstrap", "one:two")

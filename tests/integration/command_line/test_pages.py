"""Runs the commands and programs of the README and of the guides, in order, against a `klamm up` without topics."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from klamm import Admin
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster
from tests.support.pages import ROOT, blocks, masked, on_its_port, on_terminal, run, run_python, run_shell, shown
from tests.support.ports import free_port
from tests.support.waiting import patience, wait_until

README, GUIDES, TUTORIAL = "README.md", "docs/how-to", "docs/tutorial"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Yields one cluster for all tests, because a start of `klamm up` for each would take half a minute."""
    with running_cluster(tmp_path_factory.mktemp("pages")) as process:
        yield process


@pytest.fixture
def cluster(shared):
    """Yields the cluster, and deletes the topics and groups of the test at the end."""
    yield shared
    with Admin(bootstrap_servers=shared.bootstrap) as admin:
        admin.delete_groups(admin.list_groups())
        admin.delete_topics(list(admin.list_topics()))
        wait_until(lambda: not admin.list_topics())


def consume(cluster, directory: pathlib.Path, topic: str, *options: str) -> str:
    """Returns what `klamm consume` prints of the topic."""
    return run(cluster, ["klamm", "consume", topic, "--from", "beginning", "--exit", *options], directory)


def test_the_shell_commands_of_the_readme_work(cluster, tmp_path):
    install, commands, make = blocks(README, "")
    assert "klamm up" in install
    assert run_shell(cluster, tmp_path, commands).endswith("hello\n")
    targets = re.findall(r"^make (\w+)", make, re.MULTILINE)
    assert targets
    assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for target in targets)


def test_the_first_commands_of_the_site_print_what_it_shows(cluster, tmp_path):
    ((commands, output),) = shown("docs/index.md")
    assert on_terminal(cluster, tmp_path, commands) == output


@pytest.mark.parametrize("page", [f"{GUIDES}/start-on-a-laptop.md", f"{TUTORIAL}/1-start-a-cluster.md"])
def test_klamm_up_prints_the_line_that_the_pages_show(page, tmp_path):
    ((commands, line),) = shown(page)
    *_, command = commands.splitlines()
    up = [*command.split(), "--port", "0", "--kafka-port", "0"]
    assert up[:2] == ["klamm", "up"]
    with subprocess.Popen(
        [sys.executable, "-m", *up], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        printed = process.stdout.readline()
        process.terminate()
        assert process.wait(patience()) == 0
    assert masked(printed) == masked(line)


def test_the_scripts_of_the_command_line_guide_work(cluster, tmp_path):
    page = f"{GUIDES}/use-the-command-line.md"
    for commands, output in shown(page):
        assert masked(on_terminal(cluster, tmp_path, commands)) == masked(output)
    *first, rest = blocks(page, "")
    assert first == [commands for commands, _ in shown(page)]
    output = run_shell(cluster, tmp_path, rest)
    assert re.search(r"^orders +0 +1 +1 +1 +0 +\d", output, re.MULTILINE)
    assert re.search(r"^retention\.ms +604800000 +DYNAMIC_TOPIC", output, re.MULTILINE)
    assert output.endswith("deleted billing\ndeleted orders\n")


def test_the_commands_of_the_guide_to_held_records_work(cluster, tmp_path):
    page = f"{GUIDES}/keep-unread-records.md"
    ((commands, output),) = shown(page)
    assert on_terminal(cluster, tmp_path, commands) == output
    first, subtract = blocks(page, "")
    assert first == commands
    assert run_shell(cluster, tmp_path, subtract) == "altered retention.hold.groups\n"


def test_the_commands_and_the_program_of_the_guide_to_topics_work(cluster, tmp_path):
    ((commands, output),) = shown(f"{GUIDES}/manage-topics.md")
    assert on_terminal(cluster, tmp_path, commands) == output
    (program,) = blocks(f"{GUIDES}/manage-topics.md", "python")
    run_python(cluster, tmp_path, program)
    assert "orders" not in run(cluster, ["klamm", "topics", "list"], tmp_path)


def test_the_computed_topic_of_the_guide_to_measuring_is_that_of_the_command(cluster, tmp_path):
    ((command, output),) = shown(f"{GUIDES}/measure-a-cluster.md")
    assert on_terminal(cluster, tmp_path, command) == output


def test_the_commands_and_the_program_of_the_guide_to_positions_work(cluster, tmp_path):
    run(cluster, ["klamm", "produce", "orders"], tmp_path, "one\ntwo\n")
    run(cluster, ["klamm", "consume", "orders", "--group", "billing", "--from", "beginning", "--exit"], tmp_path)
    reading, resetting = blocks(f"{GUIDES}/choose-where-to-read.md", "")
    assert run_shell(cluster, tmp_path, reading) == "one\ntwo\n" * 3
    (program, read), (commands, reset) = shown(f"{GUIDES}/choose-where-to-read.md")
    assert commands == resetting
    assert on_terminal(cluster, tmp_path, commands) == reset
    assert masked(run_python(cluster, tmp_path, program)) == masked(read)


def test_the_programs_of_the_guide_to_frames_print_what_it_shows(cluster, tmp_path):
    page = f"{GUIDES}/read-a-topic-as-a-frame.md"
    programs = shown(page)
    assert [program for program, _ in programs] == blocks(page, "python")
    for program, output in programs:
        assert run_python(cluster, tmp_path, program).rstrip() == output.rstrip()


def test_the_guide_to_lags_shows_a_group_that_is_behind(cluster, tmp_path):
    run(cluster, ["klamm", "produce", "orders"], tmp_path, "1\n2\n")
    run(cluster, ["klamm", "consume", "orders", "--group", "billing", "--from", "beginning", "--exit"], tmp_path)
    run(cluster, ["klamm", "produce", "orders"], tmp_path, "3\n4\n5\n")
    ((command, output),) = shown(f"{GUIDES}/group-lags.md")
    assert masked(on_terminal(cluster, tmp_path, command)) == masked(output)


def test_the_python_programs_of_the_readme_work(cluster, tmp_path):
    klamm, kafka, _spark = blocks(README, "python")
    output = run_python(cluster, tmp_path, klamm)
    assert "topic='clicks'" in output
    assert "0 b'alice' b'/home'" in output
    run_kafka_client(cluster, tmp_path, kafka)
    assert consume(cluster, tmp_path, "clicks", "--key") == "alice\t/home\nbob\t/pricing\n"


def test_the_programs_of_the_python_client_guide_work(cluster, tmp_path):
    page = f"{GUIDES}/use-the-python-client.md"
    synchronous, asynchronous, of_confluent, transactional, typed = blocks(page, "python")
    (_, printed), (command, shouted) = shown(page)
    assert run_python(cluster, tmp_path, synchronous) == printed
    run_python(cluster, tmp_path, transactional)
    assert on_terminal(cluster, tmp_path, command) == shouted
    assert run_python(cluster, tmp_path, typed) == "/docs\n"
    written, read = printed.splitlines(keepends=True)
    assert run_python(cluster, tmp_path, asynchronous) == written.replace(" 0\n", " 1\n") + read
    assert run_kafka_client(cluster, tmp_path, of_confluent) == written.replace(" 0\n", " 2\n") + read


def test_the_partitioner_of_the_guide_sends_to_a_partition(cluster, tmp_path):
    (program,) = blocks(f"{GUIDES}/choose-partitions.md", "python")
    run_python(cluster, tmp_path, program)
    assert consume(cluster, tmp_path, "visits", "--key") == 'alice\t{"country":"cn","page":"/home"}\n'


def test_the_program_of_the_guide_to_databases_counts_each_payment_once(cluster, tmp_path):
    ((program, output),) = shown(f"{GUIDES}/process-each-record-once.md")
    assert run_python(cluster, tmp_path, program) == output
    again = program.replace('(b"10", b"20", b"30")', '(b"5",)')
    assert run_python(cluster, tmp_path, again) == "65\n"


@pytest.mark.parametrize("number", range(5), ids=["broadcast", "priority", "parts", "states", "precondition"])
def test_the_programs_of_the_recipes_print_what_the_page_shows(cluster, tmp_path, number):
    program, output = shown(f"{GUIDES}/recipes.md")[number]
    assert run_python(cluster, tmp_path, program) == output


def run_kafka_client(cluster, directory: pathlib.Path, program: str) -> str:
    assert "localhost:9092" in program
    return run(cluster, [sys.executable, "-"], directory, program.replace("localhost:9092", cluster.kafka_bootstrap))


def test_the_program_of_the_kafka_client_guide_works(cluster, tmp_path):
    (program,) = blocks(f"{GUIDES}/connect-a-kafka-client.md", "python")
    run_kafka_client(cluster, tmp_path, program)
    assert consume(cluster, tmp_path, "clicks", "--key") == "alice\t/home\n"


def test_the_separate_server_commands_of_the_guide_start_a_working_cluster(tmp_path):
    """Runs each command of the block, with other ports, because another cluster may have the default ones."""
    script = blocks(f"{GUIDES}/add-and-remove-servers.md", "")[0]
    controller, broker, coordinator = free_port(), free_port(), free_port()
    services = []
    try:
        for line, port in zip(script.splitlines(), (controller, broker, coordinator), strict=True):
            python, *arguments = line.replace("localhost:9093", f"localhost:{controller}").split()
            assert python == "python"
            with (tmp_path / f"{port}.log").open("w") as log:
                command = [sys.executable, *arguments, "--set", f"listeners=GRPC://localhost:{port}"]
                services.append(subprocess.Popen(command, cwd=tmp_path, stderr=log))
        klamm = KlammCommand(f"localhost:{broker}")
        klamm.ok("topics", "create", "apart", "--timeout", int(patience()))
        klamm.ok("produce", "apart", stdin="a\n")
        assert klamm.ok("consume", "apart", "--group", "g", "--from", "beginning", "--exit").out == "a\n"
    finally:
        for service in reversed(services):
            service.terminate()
            assert service.wait(patience()) == 0


@pytest.mark.slow
@pytest.mark.spark
def test_the_spark_programs_of_the_pages_work(cluster, tmp_path):
    """The programs run one after the other in one Python process, because a second JVM would take seconds to start."""
    run(cluster, ["klamm", "produce", "clicks"], tmp_path, "/docs\n/docs\nno page\n/blog\n")
    of_readme = blocks(README, "python")[-1]
    of_guide, listener = blocks(f"{GUIDES}/read-and-write-with-spark.md", "python")
    (writer,) = blocks(f"{TUTORIAL}/3-write-from-python.md", "python")
    (table,) = blocks(f"{TUTORIAL}/5-make-a-table-with-spark.md", "python")
    program = on_its_port(cluster, "\n".join([of_readme, of_guide, listener, table, writer, table]))
    output = run(cluster, [sys.executable, "-"], tmp_path, program.replace("/tmp/", f"{tmp_path}/"))
    counts = [int(count) for count in re.findall(r"^\| *\S.*\| *(\d+)\|$", output, re.MULTILINE)]
    assert sum(counts) == 4 + (4 + 1000), "the second run adds only the new clicks to the table"
    (command, pages), (_, behind) = shown(f"{GUIDES}/read-and-write-with-spark.md")
    assert behind in output, "the listener prints how far a query is behind"
    assert keys(consume(cluster, tmp_path, "visits", "--key")) == ["/blog", "/docs", "/docs", "no page"]
    assert masked(on_terminal(cluster, tmp_path, command)) == masked(pages)
    (_, shown_table) = shown(f"{TUTORIAL}/5-make-a-table-with-spark.md")[0]
    assert set(masked(shown_table)) <= set(masked(output))


def keys(output: str) -> list[str]:
    return sorted(line.partition("\t")[0] for line in output.splitlines())

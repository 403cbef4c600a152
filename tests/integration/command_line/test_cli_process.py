"""Tests the command as a separate process: pipes, terminals, signals, closed streams."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess

import pytest

from tests.support.cli_runner import KlammCommand
from tests.support.cli_terminal import on_terminal, read_terminal, start
from tests.support.klamm_process import running_cluster
from tests.support.waiting import patience

BROKEN_PIPE = 141
STATUSES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(scope="module")
def klamm(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("cli")) as cluster:
        command = KlammCommand(cluster.bootstrap)
        command.ok("topics", "create", "numbers", "--partitions", 1)
        command.ok("produce", "numbers", stdin="\n".join(map(str, range(20_000))))
        yield command


def test_consume_ends_silently_when_its_output_pipe_is_closed(klamm):
    with start(klamm, "consume", "numbers", "--from", "beginning") as process:
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.wait(patience()) == BROKEN_PIPE
        assert process.stderr.read() == b""


def test_consume_ends_when_its_reader_has_gone_and_no_record_follows(klamm):
    with start(klamm, "consume", "numbers", "--from", "-1") as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(patience()) == BROKEN_PIPE
        assert process.stderr.read() == b""


def test_a_table_command_ends_silently_when_its_output_pipe_is_already_closed(klamm):
    read_end, write_end = os.pipe()
    os.close(read_end)
    with start(klamm, "topics", "list", stdout=write_end) as process:
        os.close(write_end)
        assert process.wait(patience()) == BROKEN_PIPE
        assert process.stderr.read() == b""


@pytest.mark.parametrize("number", STATUSES)
@pytest.mark.parametrize("group", [(), ("--group", "interrupted")])
def test_a_signal_ends_consume_without_a_traceback(klamm, group, number):
    if group:
        group = ("--group", f"interrupted-{number.name}")
    with start(klamm, "consume", "numbers", "--from", "beginning", *group) as process:
        for _ in range(20_000):
            process.stdout.readline()
        process.send_signal(number)
        assert process.wait(patience()) == STATUSES[number]
        assert process.stderr.read() == b""
    if group:
        assert not klamm.ok("groups", "describe", group[1], "--json").document["members"]


@pytest.mark.parametrize("number", STATUSES)
def test_after_a_signal_the_next_consume_of_the_group_continues_without_a_gap(klamm, number):
    group = f"stopped-{number.name}"
    with start(klamm, "consume", "numbers", "--from", "beginning", "--group", group) as process:
        printed = [process.stdout.readline()]  # A pipe holds less than the rest, so the command is still printing.
        process.send_signal(number)
        printed += process.stdout.readlines()
        assert process.wait(patience()) == STATUSES[number]
        assert process.stderr.read() == b""
    printed += klamm.ok("consume", "numbers", "--group", group, "--exit").out.encode().splitlines(keepends=True)
    assert printed[:20_000] == [b"%d\n" % number for number in range(20_000)]


@pytest.mark.parametrize("number", STATUSES)
def test_a_signal_ends_produce_and_the_sent_records_are_kept(klamm, number):
    topic = f"typed-{number.name}"
    klamm.ok("topics", "create", topic)
    with start(klamm, "produce", topic, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"first\nsecond\n")
        process.stdin.flush()
        assert klamm.ok("consume", topic, "--from", "beginning", "-n", 2).out == "first\nsecond\n"
        process.send_signal(number)
        assert process.wait(patience()) == STATUSES[number]
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("consume", "numbers", "--from", "beginning", "-n", "1"),
        ("top", "--once", "--interval", "0.1"),
        ("--help",),
        ("--version",),
    ],
)
@pytest.mark.parametrize("is_full", [True, False])
def test_output_that_cannot_be_written_is_an_error_of_one_line(klamm, arguments, is_full):
    """The disk is full, or the caller has closed standard output."""
    with open("/dev/full", "wb") as full, start(klamm, *arguments, **_stdout(full if is_full else None)) as process:
        assert process.wait(patience()) == 1
        reason = "No space left on device" if is_full else "Bad file descriptor"
        assert process.stderr.read().decode() == f"klamm: standard output: {reason}\n"


def _stdout(file):
    """Returns the options for a process with this standard output, or with none."""
    return {"stdout": file} if file is not None else {"stdout": None, "preexec_fn": lambda: os.close(1)}


def test_up_without_a_place_for_its_line_ends_without_a_traceback(klamm, tmp_path):
    with (
        open("/dev/full", "wb") as full,
        start(klamm, "up", "--port", "0", "--data-dir", str(tmp_path / "data"), stdout=full) as process,
    ):
        assert process.wait(patience()) == 1
        assert process.stderr.read().decode() == "klamm: [Errno 28] No space left on device: 'standard output'\n"


def test_produce_without_a_standard_input_is_an_error_of_one_line(klamm):
    with start(klamm, "produce", "numbers", preexec_fn=lambda: os.close(0)) as process:
        assert process.wait(patience()) == 1
        assert process.stderr.read().decode() == "klamm: standard input: Bad file descriptor\n"


@pytest.mark.parametrize("number", STATUSES)
def test_top_repeats_itself_on_a_terminal_until_a_signal(klamm, number):
    leader, follower = pty.openpty()
    with start(klamm, "top", "--interval", "0.1", stdout=follower, stderr=follower) as process:
        os.close(follower)
        assert "numbers" in read_terminal(leader, b"numbers")
        assert "records/s" in read_terminal(leader, b"numbers")  # the next frame
        process.send_signal(number)
        assert "Traceback" not in read_terminal(leader, b"\0")
        assert process.wait(patience()) == STATUSES[number]
    os.close(leader)


def test_consume_escapes_control_characters_of_records_only_on_a_terminal(klamm):
    value = "a\tb\x1b]0;owned\x07\x9b2Jc"
    klamm.ok("topics", "create", "strange")
    klamm.ok("produce", "strange", stdin=value)
    assert klamm.ok("consume", "strange", "--from", "beginning", "--exit").out == f"{value}\n"
    shown = on_terminal(klamm, "consume", "strange", "--from", "beginning", "--exit")
    assert "a\tb\\x1b]0;owned\\x07\\x9b2Jc\r\n" in shown


def test_typing_records_on_a_terminal_says_how_to_end(klamm):
    leader, follower = pty.openpty()
    with start(klamm, "produce", "numbers", stdin=follower, stderr=follower) as process:
        os.close(follower)
        read_terminal(leader, b"Ctrl-D ends")
        os.write(leader, b"20000\n\x04")
        read_terminal(leader, b"1 record acknowledged")
        assert process.wait(patience()) == 0
    os.close(leader)
    assert klamm.ok("consume", "numbers", "--from", "20000", "-n", 1).out == "20000\n"


def test_a_file_shows_progress_on_a_terminal(klamm, tmp_path):
    (tmp_path / "lines").write_text("x" * 50 + "\n" + "\n".join("y" * 100 for _ in range(30_000)))
    text = on_terminal(klamm, "produce", "more", "--file", str(tmp_path / "lines"))
    assert re.search(r"[\d,]+ records, [\d,]+/s .*%", text)
    assert "30,001 records acknowledged by more" in text


def test_consume_says_on_a_terminal_what_it_waits_for_and_what_it_read(klamm):
    klamm.ok("topics", "create", "awaited")
    leader, follower = pty.openpty()
    with start(klamm, "consume", "awaited", stdout=follower, stderr=follower) as process:
        os.close(follower)
        read_terminal(leader, b"waiting for records of awaited (from end); Ctrl-C ends")
        klamm.ok("produce", "awaited", stdin="one\ntwo\n")
        read_terminal(leader, b"two")
        process.send_signal(signal.SIGINT)
        read_terminal(leader, b"2 records, 8 B read from awaited")
        assert process.wait(patience()) == 130
    os.close(leader)


def test_consume_to_a_file_shows_progress_on_a_terminal(klamm, tmp_path):
    klamm.ok("produce", "awaited-file", stdin="y\n" * 30_000)
    leader, follower = pty.openpty()
    options = ("--from", "beginning", "--exit", "--config", "max.poll.records=1000")
    with (
        (tmp_path / "out").open("wb") as out,
        start(klamm, "consume", "awaited-file", *options, stdout=out, stderr=follower) as process,
    ):
        os.close(follower)
        text = read_terminal(leader, b"30,000 records, 58.6 KiB read from awaited-file")
        assert process.wait(patience()) == 0
    os.close(leader)
    assert re.search(r"consuming [\d,]+ records, [\d,]+/s .*%", text)
    assert (tmp_path / "out").stat().st_size == 60_000


def test_a_message_on_a_narrow_terminal_keeps_addresses_whole(klamm):
    address = "127.0.0.1:1"
    shown = on_terminal(klamm, "topics", "list", "-b", ",".join([address] * 5), columns=60, status=3)
    assert max(map(len, shown.splitlines())) <= 60
    assert shown.count(address) == 5
    assert "`klamm up`" in shown


def test_tables_fit_a_terminal_of_80_columns_with_names_in_one_piece(klamm):
    configs = on_terminal(klamm, "configs", "describe", "--topic", "numbers")
    rows = configs.splitlines()
    assert max(map(len, rows)) <= 80
    assert "follower.replication.throttled.replicas" in configs
    assert re.search(r"^flush\.ms +9223372036854775807 +DEFAULT", configs, re.MULTILINE)
    described = on_terminal(klamm, "topics", "describe", "numbers").splitlines()
    assert len(described) == 2
    assert " ".join(described[0].split()).endswith("REPLICAS ISR START OFFSET END OFFSET")


def test_help_of_every_command_fits_and_describes_every_option(klamm):
    for command in [
        ("up",),
        ("produce",),
        ("consume",),
        ("cluster",),
        ("cluster", "quorum"),
        ("topics", "create"),
        ("configs", "alter"),
        ("groups", "reset"),
    ]:
        text = klamm.ok(*command, "--help").out
        assert f"klamm {' '.join(command)}" in text
        assert max(map(len, text.splitlines())) <= 80

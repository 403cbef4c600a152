"""`klamm up`: the whole cluster in one process, for a laptop, a test or CI.

The command parses its options with argparse. The other commands use typer, but importing typer would delay the start of
the server.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from klamm.config import DEFAULT_PORT
from klamm.errors import ConfigError
from klamm.help_formatter import HelpFormatter, add_help_option
from klamm_cli.console.assignments import parse_assignments
from klamm_cli.console.exit_status import ExitStatus

SUMMARY: Final = "Run a cluster on this machine."
DEFAULT_KAFKA_PORT: Final = 9092
MAX_PROCESSES: Final = 32
"""The largest number of brokers, and of coordinators, that `klamm up` starts."""
_DESCRIPTION: Final = f"""{SUMMARY}

The cluster runs until Ctrl-C or SIGTERM. The controller, the broker and the
coordinator run in this process. When they are ready, the command prints one
line with the address. If there are several of a kind, each server is its own
process. Their ports are consecutive, brokers first. So are the ports of
metrics, beginning at --set metrics.port=PORT. With three brokers, topics get
three replicas, of which two must be in sync."""

_EXAMPLES: Final = """Examples:
  klamm up --data-dir /tmp/klamm
  klamm up --brokers auto
  klamm up --controllers 3 --brokers 3 --coordinators 2
  klamm up --port 0 --set log.retention.hours=24
  klamm up --secure"""


def up(arguments: Sequence[str]) -> int:
    """Runs the cluster until it is stopped, and returns the exit status. Raises SystemExit after `--help` and for a
    wrong command line."""
    options = _parser().parse_args(arguments)
    try:
        chosen = {"log.level": options.log_level, "log.format": options.log_format}
        settings = {**chosen, **parse_assignments(options.set, "--set")}
    except ConfigError as error:
        return _fail(str(error), ExitStatus.USAGE)
    try:
        from klamm_embedded.up import run

        return run(
            controllers=options.controllers,
            brokers=options.brokers,
            coordinators=options.coordinators,
            data_dir=options.data_dir,
            host=options.host,
            port=options.port,
            kafka_port=_kafka_port(options.port) if options.kafka_port is None else options.kafka_port,
            settings=settings,
            is_secured=options.secure,
            die_with_parent=options.die_with_parent,
        )
    except ModuleNotFoundError as error:
        return _fail(f"{error.name} is missing: pip install 'klamm[server]'", ExitStatus.FAILED)


def option_helps() -> list[tuple[str, str]]:
    """Returns the long name and the help text of each option."""
    parser = _parser()
    formatter = parser._get_formatter()
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    return [(action.option_strings[-1], formatter._expand_help(action)) for action in shown]


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, as the other commands do."""

    def error(self, message: str) -> NoReturn:
        sys.exit(_fail(f"{message} (see `{self.prog} --help`)", ExitStatus.USAGE))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="klamm up",
        usage="klamm up [OPTIONS]",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    add = parser.add_argument
    add(
        "--data-dir",
        type=Path,
        default=Path("klamm-data"),
        metavar="DIR",
        help="Store records and metadata in this directory [default: %(default)s].",
    )
    add(
        "--host",
        default="127.0.0.1",
        help="Listen on this address, and advertise it to clients [default: %(default)s].",
    )
    add(
        "--port",
        type=_number(0, 65_535),
        default=DEFAULT_PORT,
        metavar="PORT",
        help="Listen on this port, or on ports from this one with several processes; 0 picks free ports"
        " [default: %(default)s].",
    )
    add(
        "--kafka-port",
        type=_number(0, 65_535),
        metavar="PORT",
        help="Listen for Kafka clients on this port; with several brokers, the ports are 10 apart"
        f" [default: {DEFAULT_KAFKA_PORT}; with --port, a free port].",
    )
    add(
        "--controllers",
        type=_number(1, 5),
        default=1,
        metavar="N",
        help="The number of controllers: 1, 3 or 5 [default: 1].",
    )
    add(
        "--brokers",
        type=_number_or_auto(1, MAX_PROCESSES),
        default=1,
        metavar="N",
        help="The number of brokers; auto: one for each core that this command may use [default: 1].",
    )
    add(
        "--coordinators",
        type=_number(1, MAX_PROCESSES),
        default=1,
        metavar="N",
        help="The number of coordinators [default: 1].",
    )
    add(
        "--secure",
        action="store_true",
        help="Encrypt every connection and require clients to log in; the first start creates certificates and a user.",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Set a server setting by its Kafka name; repeatable.",
    )
    add(
        "--log-level",
        default="WARNING",
        metavar="LEVEL",
        help="Log messages of this level and above: DEBUG, INFO, WARNING or ERROR [default: %(default)s].",
    )
    add(
        "--log-format",
        default="auto",
        metavar="FORMAT",
        help="Log as text or json; auto: text on a terminal, otherwise json [default: auto].",
    )
    # The option is for programs that start a cluster, so argparse.SUPPRESS keeps it out of the help.
    add("--die-with-parent", action="store_true", help=argparse.SUPPRESS)
    add_help_option(parser)
    return parser


def _number(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not valid, expected a number from {least} to {most}")
        return number

    return parse


def _number_or_auto(least: int, most: int) -> Callable[[str], int | None]:
    """Returns a parser of a number, which returns None for `auto`."""

    def parse(text: str) -> int | None:
        if text == "auto":
            return None
        try:
            return _number(least, most)(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}, or auto") from None

    return parse


def _kafka_port(port: int) -> int:
    """Returns Kafka's default port if `port` is Klamm's default port. Otherwise returns 0, so that a free port is
    picked."""
    return DEFAULT_KAFKA_PORT if port == DEFAULT_PORT else 0


def _fail(text: str, status: ExitStatus) -> ExitStatus:
    print(f"klamm: {text}", file=sys.stderr)  # noqa: T201 - prints the error for the user
    return status

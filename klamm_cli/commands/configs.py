"""`klamm configs`: describes and alters the configs of a topic, of one broker or of all brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from klamm_cli.console.assignments import parse_assignments
from klamm_cli.console.change import DryRun, print_change, tense
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    fail,
    print_json,
    print_rows,
)

if TYPE_CHECKING:
    from klamm.admin import ConfigChange, ConfigOperation, ConfigResource

app = new_app("Describe and alter configs of topics and brokers.")

Topic = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The configs of this topic.")]
Broker = Annotated[
    int | None, typer.Option("--broker", metavar="BROKER", help="The configs of this broker (its node.id).")
]
AllBrokers = Annotated[
    bool,
    typer.Option(
        "--all-brokers", "--brokers-default", help="The configs of all brokers, for brokers without their own value."
    ),
]


def _resource(topic: str | None, broker: int | None, all_brokers: bool) -> ConfigResource:
    from klamm.admin import ConfigResource, ConfigResourceType

    if (topic is not None) + (broker is not None) + all_brokers != 1:
        fail("say which configs: --topic NAME, --broker ID or --all-brokers", ExitStatus.USAGE)
    if topic is not None:
        return ConfigResource(ConfigResourceType.TOPIC, topic)
    return ConfigResource(ConfigResourceType.BROKER, "" if broker is None else str(broker))


@app.command(
    "describe",
    epilog=examples(
        "klamm configs describe --topic orders",
        "klamm configs describe retention.ms --topic orders --docs",
        "klamm configs describe --broker 1 --json",
    ),
)
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="The configs [default: all].")] = None,
    topic: Topic = None,
    broker: Broker = None,
    all_brokers: AllBrokers = False,
    docs: Annotated[bool, typer.Option("--docs", help="Show what each config does.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show configs: values, where each comes from, and defaults."""
    resource = _resource(topic, broker, all_brokers)
    with connected(bootstrap, timeout) as admin:
        described = admin.describe_configs([resource], names=names or (), include_documentation=docs)
    entries = described[resource]
    if unknown := [name for name in names or () if name not in entries]:
        fail(f"there is no config {', '.join(unknown)}; without names, all are listed")
    columns = ("name", "value", "source", "default", "type", "read_only", "documentation")
    rows = [
        (
            entry.name,
            "(hidden)" if entry.sensitive else entry.value,
            entry.source.name,
            # A table shows the default only where it differs from the value, because a terminal is narrow.
            entry.default_value if as_json or entry.default_value != entry.value else None,
            entry.type,
            entry.read_only,
            entry.documentation,
        )
        for _, entry in sorted(entries.items())
    ]
    print_rows(columns, rows, as_json=as_json, json_only={"type", "read_only", *(() if docs else ("documentation",))})


@app.command(
    "alter",
    epilog=examples(
        "klamm configs alter --topic orders --set retention.ms=86400000",
        "klamm configs alter --broker 1 --set log.cleaner.threads=2",
        "klamm configs alter --all-brokers --delete log.retention.ms",
    ),
)
def alter(
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a value; repeatable.")
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="NAME", help="Restore the default; repeatable.")
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option("--append", metavar="NAME=VALUE", help="Add a value to a list; repeatable.")
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option("--subtract", metavar="NAME=VALUE", help="Remove a value from a list; repeatable."),
    ] = None,
    topic: Topic = None,
    broker: Broker = None,
    all_brokers: AllBrokers = False,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Change configs: all of the changes, or none."""
    from klamm.admin import ConfigChange, ConfigOperation

    resource = _resource(topic, broker, all_brokers)
    changes = [
        *_changes(set_, "--set", ConfigOperation.SET),
        *_changes(append, "--append", ConfigOperation.APPEND),
        *_changes(subtract, "--subtract", ConfigOperation.SUBTRACT),
        *(ConfigChange(name, operation=ConfigOperation.DELETE) for name in delete or ()),
    ]
    if not changes:
        fail("nothing to change: use --set, --delete, --append or --subtract", ExitStatus.USAGE)
    with connected(bootstrap, timeout) as admin:
        admin.incremental_alter_configs({resource: changes}, validate_only=validate_only)
    names = [change.name for change in changes]
    line = f"{tense(validate_only, 'altered', 'alter')} {', '.join(names)}"
    print_change({"altered": names}, line, as_json=as_json, validate_only=validate_only)


@app.command("docs", epilog=examples("klamm configs docs > settings.md"))
def docs(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
) -> None:
    """Print the reference of all settings, in Markdown."""
    try:
        from klamm_cli.commands.settings_reference import document, reference
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: pip install 'klamm[server,spark]'")
    if as_json:
        print_json(document())
    else:
        typer.echo(reference())


def _changes(pairs: list[str] | None, option: str, operation: ConfigOperation) -> list[ConfigChange]:
    from klamm.admin import ConfigChange

    return [ConfigChange(name, value, operation) for name, value in parse_assignments(pairs or [], option).items()]

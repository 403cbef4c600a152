"""`klamm pipeline`: lists the data pipelines on Spark, runs one, and makes the file that spark-submit ships."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from klamm.cli.command import new_app
from klamm.cli.exit_status import ExitStatus
from klamm.cli.output import Json, fail, print_rows

app = new_app("Data pipelines on Spark: list them, run one.")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Lists the pipelines there are."""
    with _installed():
        from klamm_pipelines.catalog import PIPELINES
    rows = [(name, each.summary) for name, each in PIPELINES.items()]
    print_rows(("pipeline", "what it does"), rows, as_json=as_json)


@app.command(
    "run",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    options_metavar="",
)
def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A pipeline of `klamm pipeline list`.")],
) -> None:
    """Runs a pipeline, here or with --master spark://host:port; `klamm pipeline run NAME --help` has its options.

    A stream stops at the end of what its topics hold, and with --follow goes on until Ctrl-C or SIGTERM."""
    with _installed():
        from klamm_pipelines.catalog import PIPELINES
        from klamm_pipelines.job import run as run_pipeline

        if name in ("-h", "--help"):
            typer.echo(f"usage: klamm pipeline run NAME [OPTIONS]\n\nNAME: {', '.join(PIPELINES)}")
            return
        if name not in PIPELINES:
            fail(f"there is no pipeline {name!r}; expected one of {', '.join(PIPELINES)}", ExitStatus.USAGE)
        raise typer.Exit(run_pipeline(PIPELINES[name], context.args, program=f"klamm pipeline run {name}"))


@app.command("zip")
def zip_(path: Annotated[pathlib.Path, typer.Argument(help="The file to write.")]) -> None:
    """Writes Klamm as a zip file for `spark-submit --py-files`: client library, connector and pipelines."""
    with _installed():
        from klamm_pipelines.py_files import write_py_files
    try:
        write_py_files(path)
    except OSError as error:
        fail(f"{path}: {error.strerror}", ExitStatus.USAGE)


@contextmanager
def _installed() -> Iterator[None]:
    """Ends the command with one line when Spark is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: pip install 'klamm[spark]'")

"""`klamm pipeline`: lists the data pipelines on Spark, runs one, and makes the file that spark-submit ships."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from klamm_cli.console.command import examples, new_app
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import Json, fail, print_json, print_rows

app = new_app("List and run data pipelines on Spark.")


@app.command("list", epilog=examples("klamm pipeline list"))
def list_(as_json: Json = False) -> None:
    """List the pipelines."""
    with _installed():
        from klamm_pipelines.catalog import PIPELINES
    rows = [(name, pipeline.summary) for name, pipeline in PIPELINES.items()]
    print_rows(("pipeline", "what it does"), rows, as_json=as_json)


@app.command(
    "run",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    options_metavar="",
)
def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline of `klamm pipeline list`.")],
) -> None:
    """Run a pipeline.

    `klamm pipeline run PIPELINE --help` shows the pipeline's options. A stream
    stops at the end of its topics. With --follow, it continues until Ctrl-C or
    SIGTERM."""
    with _installed():
        from klamm_pipelines.catalog import PIPELINES
        from klamm_pipelines.job import run as run_pipeline

        if name in ("-h", "--help"):
            typer.echo(_RUN_HELP.format(pipelines="\n".join(f"  {pipeline}" for pipeline in PIPELINES)))
            return
        if name not in PIPELINES:
            fail(f"there is no pipeline {name!r}; expected one of {', '.join(PIPELINES)}", ExitStatus.USAGE)
        raise typer.Exit(run_pipeline(PIPELINES[name], context.args, program=f"klamm pipeline run {name}"))


@app.command("zip", epilog=examples("klamm pipeline zip klamm.zip"))
def zip_(
    path: Annotated[pathlib.Path, typer.Argument(metavar="FILE", help="The file to write.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Write Klamm as a zip file for `spark-submit --py-files`.

    The file contains the client library, the connector and the pipelines."""
    with _installed():
        from klamm_pipelines.py_files import write_py_files
    try:
        write_py_files(path)
    except OSError as error:
        fail(f"{path}: {error.strerror}", ExitStatus.USAGE)
    if as_json:
        print_json({"written": str(path)})


_RUN_HELP = """Usage: klamm pipeline run PIPELINE [OPTIONS]

  Run a pipeline.

  `klamm pipeline run PIPELINE --help` shows the pipeline's options.

Pipelines:
{pipelines}"""


@contextmanager
def _installed() -> Iterator[None]:
    """Ends the command with a one-line error if Spark or another required package is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: pip install 'klamm[spark]'")

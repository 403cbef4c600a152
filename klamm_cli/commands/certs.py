"""`klamm certs`: makes certificates for a private network, and shows the certificates in a file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from klamm_cli.console.change import DryRun, print_change
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.output import Json, fail, one_line_errors, print_json, print_lines
from klamm_cli.dry_run.files import check_writable

app = new_app("Make certificates for development; show what a certificate contains.")

_HOSTS = ("localhost", "127.0.0.1", "::1")


@app.command(
    "dev",
    epilog=examples("klamm certs dev", "klamm certs dev --dir /etc/klamm --host a.example.com --host 10.0.0.7"),
)
def dev(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="The directory for the files.")] = Path(
        "certs"
    ),
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="A name or address at which clients reach the servers; repeatable [default: only those"
            " of this machine].",
        ),
    ] = None,
    servers: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            metavar="NAME",
            help="A server with its own certificate, NAME.pem, which is also valid for the host NAME;"
            " repeatable [default: node.pem for all servers].",
        ),
    ] = None,
    validate_only: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make a CA and certificates for servers and clients.

    The certificates are valid for 90 days, the CA for ten years. If the directory has a CA, the command uses it
    again."""
    from klamm.security.dev_files import NODE, DevFiles

    files = DevFiles(directory)
    now = datetime.now(UTC)
    with one_line_errors():
        try:
            if validate_only:
                check_writable(directory)
                files.existing_ca(now)
            else:
                files.make(hosts or _HOSTS, servers=servers or (), now=now)
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}")
    keystores = [str(files.server(name).absolute()) for name in servers or [NODE]]
    document = {
        "ssl.keystore.location": keystores,
        "ssl.truststore.location": str(files.ca.absolute()),
        "client_properties": str(files.client_properties.absolute()),
    }
    lines = [
        *(f"servers: ssl.keystore.location={keystore}" for keystore in keystores),
        f"         ssl.truststore.location={files.ca.absolute()}",
        f"clients: the settings in {files.client_properties.absolute()}",
    ]
    head = ["would write these files:"] if validate_only else []
    print_change(document, *head, *lines, as_json=as_json, validate_only=validate_only)


@app.command("show", epilog=examples("klamm certs show broker.pem"))
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of certificates, as PEM.")],
    as_json: Json = False,
) -> None:
    """Show the certificates in a file.

    For each certificate: its subject, names, issuer and validity. For the file: whether its private key belongs to the
    certificate."""
    from klamm.security.certificate_facts import certificate_facts, key_match

    with one_line_errors():
        try:
            pem = file.read_bytes()
        except OSError as error:
            fail(f"{file}: {error.strerror}")
        found = certificate_facts(str(file), pem, now=datetime.now(UTC))
        matches = key_match(str(file), pem)
    rows = [
        {
            "subject": certificate.subject,
            "names": list(certificate.names),
            "issuer": certificate.issuer,
            "valid_from": certificate.not_before.isoformat(),
            "valid_until": certificate.not_after.isoformat(),
            "days_left": certificate.days_left,
        }
        for certificate in found
    ]
    if as_json:
        print_json({"certificates": rows, "key_matches": matches.value})
        return
    for row in rows:
        for name, value in row.items():
            print_lines(f"{name + ':':<13}{', '.join(value) if isinstance(value, list) else value}")
        print_lines("")
    print_lines(f"key matches: {matches.value}")

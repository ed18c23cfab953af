"""`reconciler convert`: convert files of compose, Kubernetes, Kamal and Podman."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from reconciler.cli.convert_io import (
    convert_named_files,
    files_argument,
    name_directory,
    out_options,
    print_plain_findings,
    write_drafts,
)
from reconciler.input_files import ProjectFiles


@click.command(epilog="Example: reconciler convert deploy/ --gvc shop --out manifests")
@files_argument
@click.option("--gvc", metavar="NAME", default="", help="The GVC of all; else the namespace or service.")
@click.option("--location", "locations", metavar="NAME", multiple=True, help="Write the GVCs too, at this location.")
@click.option(
    "--protocol",
    type=click.Choice(["http", "http2", "grpc", "tcp"]),
    metavar="NAME",
    help="http, http2, grpc or tcp, for all ports.",
)
@click.option("--destination", metavar="NAME", default="", help="Of Kamal: read deploy.NAME.yml too.")
@click.option("--allow-outside", is_flag=True, help="Read files outside of a FILE's project too.")
@click.option("--commit", is_flag=True, help="Write below --out, or here, and commit it in Git.")
@click.option("--plain-secrets", is_flag=True, help="Commit secrets in plain text, too.")
@out_options
def command(
    files: tuple[str, ...], out: Path | None, force: bool, commit: bool, plain_secrets: bool, **options: Any
) -> int:
    """Write manifests for files of compose, Kubernetes, Kamal and Podman.

    A FILE is YAML or JSON, a quadlet, a directory of such files, or - for standard input; all are converted together. A
    warning names each field without a counterpart. Values of Secrets stay as they are. Files that a FILE names are read
    if they are in the directory of its project. Errors in the input make the exit code 1, and nothing is written.
    """
    from reconciler.convert.files import ConversionOptions
    from reconciler.model.finding import has_errors

    is_outside_allowed = options.pop("allow_outside")
    chosen = ConversionOptions(
        protocol=options.pop("protocol") or "",
        open_project=lambda directory: ProjectFiles(directory, allow_outside=is_outside_allowed).read,
        environ=os.environ,
        name_directory=name_directory,
        **options,
    )
    if commit:
        from reconciler.cli.convert_commit import commit_manifests

        return commit_manifests(files, chosen, out or Path(), force=force, plain_secrets=plain_secrets)
    converted = convert_named_files(files, chosen)
    print_plain_findings(converted.findings)
    if has_errors(converted.findings):
        return 1
    write_drafts(converted.drafts, out, force)
    return 0

"""`reconciler convert`: convert files of Kubernetes, Kamal and Podman."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.convert_io import (
    files_argument,
    manifest_problems,
    out_options,
    print_plain_findings,
    refuse_nothing,
    write_drafts,
)
from reconciler.input_files import ProjectFiles, read_beside, read_files


@click.command(epilog="Example: reconciler convert deploy/ --gvc shop --out manifests")
@files_argument
@click.option("--gvc", metavar="NAME", default="", help="The GVC of all; else the namespace or service.")
@click.option(
    "--protocol",
    type=click.Choice(["http", "http2", "grpc", "tcp"]),
    metavar="NAME",
    help="http, http2, grpc or tcp, for all ports; else names, probes and numbers decide.",
)
@click.option("--destination", metavar="NAME", default="", help="Of Kamal: read deploy.NAME.yml too.")
@click.option("--allow-outside", is_flag=True, help="Read files outside of a FILE's project too.")
@out_options
def command(files: tuple[str, ...], out: Path | None, force: bool, allow_outside: bool, **options: str | None) -> int:
    """Write manifests for files of Kubernetes, Kamal (deploy.yml) and Podman.

    A FILE is YAML or JSON, a quadlet, a directory of such files, or - for standard input. All are converted together,
    since Services, pods and the like describe other resources. A warning names each field without a counterpart. A GVC
    with its locations must exist. Values of Secrets stay as they are. Files that a FILE names are read if they are in
    the directory of its project. Only errors in the input make the exit code 1; nothing is written then.
    """
    from reconciler.convert.files import ConversionOptions, convert_files, refuse_others
    from reconciler.convert.quadlet.units import drop_in_directories
    from reconciler.documents.recognition import CONVERTIBLE, UNIT_SUFFIXES, Recogniser
    from reconciler.model.finding import has_errors

    chosen = ConversionOptions(
        options["gvc"] or "",
        options["protocol"] or "",
        options["destination"] or "",
        lambda directory: ProjectFiles(directory, allow_outside=allow_outside).read,
    )
    chosen.check()
    beside = read_beside(read_files(files, UNIT_SUFFIXES, Recogniser(CONVERTIBLE).advice), drop_in_directories)
    contents = chosen.without_destinations(beside)
    refuse_others(contents)
    converted = convert_files(contents, chosen, manifest_problems)
    print_plain_findings(converted.findings)
    if has_errors(converted.findings):
        return 1
    refuse_nothing(converted.drafts, converted.findings, files)
    write_drafts(converted.drafts, out, force)
    return 0

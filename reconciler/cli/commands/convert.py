"""`reconciler convert`: convert files of Kubernetes, Kamal and Podman."""

from __future__ import annotations

import re
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
from reconciler.errors import UsageError
from reconciler.input_files import read_files


@click.command(epilog="Example: reconciler convert deploy/ --gvc shop --out manifests")
@files_argument
@click.option("--gvc", metavar="NAME", default="", help="The GVC of every manifest; else the namespace or service.")
@click.option(
    "--protocol",
    type=click.Choice(["http", "http2", "grpc", "tcp"]),
    help="The protocol of all ports; else names, probes and numbers decide.",
)
@out_options
def command(files: tuple[str, ...], gvc: str, protocol: str | None, out: Path | None, force: bool) -> int:
    """Write manifests for files of Kubernetes, Kamal (deploy.yml) and Podman.

    A FILE is YAML or JSON, a quadlet, a directory of such files, or - for standard input. All are converted together,
    since Services, pods and the like describe other resources. A warning names each field without a counterpart. A GVC
    with its locations must exist. Values of Secrets stay as they are; files that a FILE names are not read.

    Only errors in the input make the exit code 1; nothing is written then.
    """
    from reconciler.convert.files import convert_files, refuse_others
    from reconciler.convert.quadlet.units import SUFFIXES
    from reconciler.convert.recognition import CONVERTIBLE, Recogniser
    from reconciler.model.finding import has_errors

    if gvc and not re.fullmatch("[a-z]([-a-z0-9]{0,62}[a-z0-9])?", gvc):
        raise UsageError(f"--gvc {gvc}: a name is lower-case letters, digits and hyphens, at most 64")
    contents = read_files(files, SUFFIXES, Recogniser(CONVERTIBLE).advice)
    refuse_others(contents)
    converted = convert_files(contents, gvc, protocol or "", manifest_problems)
    print_plain_findings(converted.findings)
    if has_errors(converted.findings):
        return 1
    refuse_nothing(converted.drafts, converted.findings, files)
    write_drafts(converted.drafts, out, force)
    return 0

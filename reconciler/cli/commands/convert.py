"""`reconciler convert`: convert Kubernetes YAML to manifests."""

from __future__ import annotations

import re
from pathlib import Path

import click

from reconciler.cli.convert_io import files_argument, out_options, print_plain_findings, write_drafts
from reconciler.errors import UsageError
from reconciler.input_files import read_files


@click.command(epilog="Example: reconciler convert deploy/ --gvc shop --out manifests")
@files_argument
@click.option("--gvc", metavar="NAME", default="", help="The GVC of every manifest; else that of the namespace.")
@click.option(
    "--protocol",
    type=click.Choice(["http", "http2", "grpc", "tcp"]),
    help="The protocol of all ports; else names, probes and numbers decide.",
)
@out_options
def command(files: tuple[str, ...], gvc: str, protocol: str | None, out: Path | None, force: bool) -> int:
    """Write manifests for the Kubernetes resources in each FILE, in their order.

    A FILE is YAML or JSON, a directory of such files, or - for standard input. All are converted together, since
    Services, autoscalers and the like describe other resources. A warning names each field without a counterpart. A
    GVC with its locations must exist, or be written by hand. Values of Secrets stay as they are.

    Only errors in the input make the exit code 1; nothing is written then.
    """
    from reconciler.convert.kubernetes.convert import convert
    from reconciler.convert.notes import findings
    from reconciler.convert.reader import read_kubernetes
    from reconciler.model.finding import has_errors

    if gvc and not re.fullmatch("[a-z]([-a-z0-9]{0,62}[a-z0-9])?", gvc):
        raise UsageError(f"--gvc {gvc}: a name is lower-case letters, digits and hyphens, at most 64")
    contents = read_files(files)
    sources, faults = read_kubernetes(contents)
    converted = convert(sources, gvc, protocol or "")
    reported = sorted([*faults, *findings(converted.remarks, contents)])
    print_plain_findings(reported)
    if has_errors(reported):
        return 1
    write_drafts(converted.drafts, out, force)
    return 0

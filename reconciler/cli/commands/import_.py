"""`reconciler import`: import manifests that the platform exported."""

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
from reconciler.errors import RefusedError, UsageError
from reconciler.input_files import read_files


@click.command(epilog="Example: reconciler import export.yaml --org acme --out manifests")
@files_argument
@click.option("--scheme", metavar="NAME", default="platform", help="The spelling of the platform in each FILE.")
@click.option("--org", metavar="ORG", default="", help="The org of the manifests; else that of each.")
@click.option("--gvc", metavar="NAME", default="", help="The GVC of resources without one.")
@out_options
def command(files: tuple[str, ...], scheme: str, org: str, gvc: str, out: Path | None, force: bool) -> int:
    """Import the manifests that the platform exported, in each FILE.

    A FILE is YAML or JSON, a directory of such files, or - for standard input. Fields of the platform and default
    values are removed, links become relative, URIs, tags and variables become ours. Comments are lost, and secrets
    without data are left out.

    A resource without a GVC belongs to the only GVC of its FILE, else to the only one of all. With --out each resource
    gets a file: GVC/gvc.yaml, GVC/workload/NAME.yaml, secret/NAME.yaml. Only errors make the exit code 1; nothing is
    written then.
    """
    from reconciler.convert.checking import check_drafts
    from reconciler.convert.export.convert import normalise_resources
    from reconciler.convert.notes import make_findings
    from reconciler.convert.reader import read_all
    from reconciler.documents.recognition import MANIFESTS, Recogniser
    from reconciler.documents.types import TEXT_FIELDS
    from reconciler.model.finding import has_errors
    from reconciler.model.key import GVC_SCOPED

    if not re.fullmatch("[a-z][a-z0-9]*", scheme):
        raise UsageError(f"--scheme {scheme}: lower-case letters and digits, as in the settings")
    recogniser = Recogniser(MANIFESTS)
    contents = read_files(files, advice=recogniser.advice)
    recogniser.refuse_others(contents)
    sources, faults = read_all(contents, TEXT_FIELDS)
    imported = normalise_resources(sources, org, scheme, gvc)
    reported = sorted([*faults, *make_findings(imported.remarks, contents)])
    if not has_errors(reported):
        unfit = check_drafts(imported.drafts, next(iter(contents)), manifest_problems, imported=True)
        reported = sorted([*reported, *make_findings(unfit, contents)])
    print_plain_findings(reported)
    if has_errors(reported):
        return 1
    refuse_nothing(imported.drafts, reported, files)
    if out is not None and (
        homeless := [draft for draft in imported.drafts if draft.kind in GVC_SCOPED and not draft.gvc]
    ):
        first = f"{homeless[0].kind}/{homeless[0].name}"
        raise RefusedError(f"the GVC of {first} is not known, so it has no place below {out}; use --gvc NAME")
    write_drafts(imported.drafts, out, force)
    return 0

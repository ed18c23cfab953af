"""`reconciler import`: manifests that the platform exported, as people write them."""

from __future__ import annotations

import re
from pathlib import Path

import click

from reconciler.cli.convert_io import files_argument, out_options, put, read_files, tell
from reconciler.errors import UsageError


@click.command(epilog="Example: reconciler import export.yaml --org acme --out manifests")
@files_argument
@click.option("--scheme", metavar="NAME", default="platform", help="How the platform is spelled in them.")
@click.option("--org", metavar="ORG", default="", help="The org whose links become relative; else each says its own.")
@out_options
def command(files: tuple[str, ...], scheme: str, org: str, out: Path | None, force: bool) -> int:
    """Tidy the manifests in each FILE: nothing in them that the platform sets itself or takes anyway.

    A FILE is YAML or JSON, a directory with all such files below it, or - for standard input. Fields of the platform
    and defaults go, links into the org become relative, URIs, tags and variables of another spelling become ours.
    Comments cannot be kept. Secrets are exported without their data, so those are left out.

    With --out each resource gets a file: GVC/gvc.yaml, GVC/workload/NAME.yaml, secret/NAME.yaml.
    Only faults in the input make the exit code 1, and nothing is written then.
    """
    from reconciler.convert.export.convert import normalise
    from reconciler.convert.notes import findings
    from reconciler.convert.reader import read_all
    from reconciler.documents.fast_path import TEXT_FIELDS
    from reconciler.model.finding import has_errors

    if not re.fullmatch("[a-z][a-z0-9]*", scheme):
        raise UsageError(f"--scheme {scheme}: lower-case letters and digits, as in the settings")
    contents = read_files(files)
    sources, faults = read_all(contents, TEXT_FIELDS)
    imported = normalise(sources, org, scheme)
    told = sorted([*faults, *findings(imported.remarks, contents)])
    tell(told)
    if has_errors(told):
        return 1
    put(imported.drafts, out, force)
    return 0

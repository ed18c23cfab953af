"""`reconciler init`: create a repository of example manifests."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from reconciler.cli.git_commands import make_repository
from reconciler.errors import RefusedError

TEMPLATES = {"system": "repo", "web": "web", "compose": "compose", "kubernetes": "k8s"}
"""Example → its directory below ``examples``."""
_CONVERTED = {"compose": "compose.yaml", "kubernetes": "k8s/"}
"""Example → what of it is converted to manifests."""
_LOCATIONS = {"system": "    aws-us-west-2: {engine: host}\n    gcp-us-east1: {engine: host}"}
_LOCAL = "    local: {engine: host}"


@click.command(epilog="Example: reconciler init manifests")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--template", type=click.Choice(TEMPLATES), default="system", help="Which example; system.")
def command(directory: Path, template: str) -> None:
    """Make DIR a Git repository of example manifests.

    `system` is a small one: two GVCs with workloads, a volume set, and the resources they need. `web` is one page,
    `compose` and `kubernetes` are one whose manifests are converted from such files. DIR must be empty or new.
    """
    create_example(directory, template)
    click.echo(_NEXT.format(directory=directory, url=directory.resolve(), locations=_LOCATIONS.get(template, _LOCAL)))


def create_example(directory: Path, template: str) -> None:
    """Make ``directory``, which is empty or new, a repository of the example ``template``, with one commit.

    Raises RefusedError.
    """
    from reconciler.documents.schema.loader import find_shipped_path

    try:
        if directory.exists() and any(directory.iterdir()):
            raise RefusedError(f"{directory} is not empty; name an empty or a new directory")
        shutil.copytree(find_shipped_path(f"examples/{TEMPLATES[template]}"), directory, dirs_exist_ok=True)
        if template in _CONVERTED:
            _convert_example(directory, _CONVERTED[template])
        _bring_schemas(find_shipped_path("schemas"), directory)
    except OSError as error:
        raise RefusedError(f"{directory} cannot be written: {error.strerror or error}") from error
    make_repository(directory, "Begin with the example system")


def _convert_example(directory: Path, name: str) -> None:
    """Write the manifests that the files ``name`` in ``directory`` become; those are no manifests themselves."""
    from reconciler.cli.convert_io import convert_named_files, write_drafts
    from reconciler.cli.local_settings import DEFAULT_LOCATION
    from reconciler.convert.files import ConversionOptions
    from reconciler.input_files import ProjectFiles
    from reconciler.source.file_filter import IGNORE_FILE

    options = ConversionOptions(
        open_project=lambda folder: ProjectFiles(folder, allow_outside=False).read, locations=(DEFAULT_LOCATION,)
    )
    converted = convert_named_files([str(directory / name)], options)
    write_drafts(converted.drafts, directory, force=False)
    (directory / IGNORE_FILE).write_text(f"/{name}\n", encoding="utf-8")


def _bring_schemas(schemas: Path, directory: Path) -> None:
    """Copy the schemas beside the manifests, whose first lines name them for editors."""
    shutil.copytree(schemas, directory / ".schemas")
    for manifest in directory.rglob("*.yaml"):
        manifest.write_text(manifest.read_text().replace("=../../../schemas/", "=../.schemas/"))


_NEXT = """\
{directory} is a repository of manifests now, with one commit on the branch main.

Next:
  reconciler validate {directory}        check it
  reconciler up {directory}              run it on this machine, until Ctrl-C

or name it in the settings of a daemon, and start that with `reconciler run`:
  org: acme
  sources:
    - {{name: main, url: {url}, branch: main}}
  locations:                             # host: runs on this machine; recorded: runs nothing
{locations}"""

"""`reconciler init`: create a repository of example manifests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click

from reconciler.errors import RefusedError, UsageError


@click.command(epilog="Example: reconciler init manifests")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
def command(directory: Path) -> None:
    """Make DIR a Git repository of example manifests.

    The example is a small system: two GVCs with workloads, a volume set, and the resources they need.
    DIR must be empty or not exist yet.
    """
    from reconciler.documents.schema.loader import find_shipped_path

    try:
        if directory.exists() and any(directory.iterdir()):
            raise RefusedError(f"{directory} is not empty; name an empty or a new directory")
        shutil.copytree(find_shipped_path("examples/repo"), directory, dirs_exist_ok=True)
        _bring_schemas(find_shipped_path("schemas"), directory)
    except OSError as error:
        raise UsageError(f"{directory} cannot be written: {error.strerror or error}") from error
    _run_git(directory, "init", "--quiet", "--initial-branch=main")
    _run_git(directory, "add", "--all")
    _run_git(
        directory,
        *_list_author_options(directory),
        "commit",
        "--quiet",
        "--no-verify",
        "--message=Begin with the example system",
    )
    click.echo(_NEXT.format(directory=directory, url=directory.resolve()))


def _bring_schemas(schemas: Path, directory: Path) -> None:
    """Copy the schemas beside the manifests, whose first lines name them for editors."""
    shutil.copytree(schemas, directory / ".schemas")
    for manifest in directory.rglob("*.yaml"):
        manifest.write_text(manifest.read_text().replace("=../../../schemas/", "=../.schemas/"))


def _run_git(directory: Path, *words: str) -> str:
    """Run git in ``directory``; raises RefusedError with its message."""
    try:
        ran = subprocess.run(["git", *words], cwd=directory, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise UsageError("git is not installed; install it and try again") from error
    if ran.returncode:
        raise RefusedError(f"git {words[0]} failed in {directory}: {ran.stderr.strip()}")
    return ran.stdout.strip()


def _list_author_options(directory: Path) -> list[str]:
    """Options that name an author where the user has set none in Git."""
    exit_code = subprocess.run(
        ["git", "var", "GIT_AUTHOR_IDENT"], cwd=directory, capture_output=True, check=False
    ).returncode
    return ["-c", "user.name=reconciler", "-c", "user.email=reconciler@localhost"] if exit_code else []


_NEXT = """\
{directory} is a repository of manifests now, with one commit on the branch main.

Next:
  reconciler validate {directory}        check it

then name it in the settings and start the daemon with `reconciler run`:
  org: acme
  sources:
    - {{name: main, url: {url}, branch: main}}
  locations:                             # host: runs on this machine; recorded: runs nothing
    aws-us-west-2: {{engine: host}}
    gcp-us-east1: {{engine: host}}"""

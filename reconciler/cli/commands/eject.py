"""`reconciler eject`: write the objects of a cluster as files for kubectl."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.commands.render import find_rendering
from reconciler.cli.options import load_settings_as_owner, read_records, settings_option

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command(epilog="Example: reconciler eject manifests-of-cluster --location byok-cluster")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--location", metavar="NAME", default="", help="The location, if several are on clusters.")
@click.option("--gvc", metavar="NAME", default="", help="Only the workloads of this GVC.")
@click.option("--secrets", is_flag=True, help="Write Secrets with their data, in files that only you can read.")
@settings_option
def command(settings_file: Path, directory: Path, location: str, gvc: str, secrets: bool) -> None:
    """Write the objects of all workloads of a location to DIRECTORY, with a kustomization.yaml.

    `kubectl apply -k DIRECTORY` then applies what this program has applied. The directory must be new or empty. Without
    --secrets, Secrets are left out, and README.md lists them: those on the cluster stay as they are.
    """
    from contextlib import closing

    from reconciler.errors import UsageError
    from reconciler.render.objects import lay_out_objects
    from reconciler.secrets.store import SecretStore

    settings = load_settings_as_owner(settings_file)
    name, plugin = find_rendering(settings, location)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not empty; name a new directory")
    records = read_records(settings)
    with closing(SecretStore(records, settings)) as store:
        rendered = list(plugin.render(settings, records, name, store.read, lambda key: not gvc or key.gvc == gvc))
    files = lay_out_objects(((str(resource.key), resource.objects) for resource in rendered), secrets=secrets)
    _write_files(directory, files)
    click.echo(f"{directory}: {len(files)} files; apply them with: kubectl apply --server-side -k {directory}")


def _write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write ``files`` so that only their owner can read them: Secrets may be among them."""
    import os

    from reconciler.errors import RefusedError

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, text in files.items():
            file = directory / path
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(number, "w", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        raise RefusedError(f"{error.filename or directory} cannot be written: {error.strerror}") from None

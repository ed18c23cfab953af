"""`reconciler volume`: manage the data of volumes on this host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.operator import confirm_loss
from reconciler.cli.options import get_operator_name, load_settings_as_owner, read_records, settings_option
from reconciler.cli.target_arguments import TargetCommand, key_argument
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.engines.reading import SupportsSnapshotMoves
    from reconciler.model.key import Key
    from reconciler.settings import Settings


@click.group(epilog="Example: reconciler volume import volumeset/shop/data nightly")
def command() -> None:
    """Manage the data of volumes on this host, apart from the commands on volume sets that exist.

    `reconciler command` has those.
    """


@command.command(
    cls=TargetCommand,
    short_help="Delete what was retained of a deleted volume.",
    epilog="Example: reconciler volume delete-final-snapshot volumeset/shop/old 0-20260131T120000Z",
)
@key_argument()
@click.argument("name")
@click.option("--location", metavar="NAME", default="", help="Where, if several have one of this name.")
@click.option("--yes", is_flag=True, help="Do not ask before the data is deleted.")
@settings_option
def delete_final_snapshot(settings_file: Path, key: Key, name: str, location: str, yes: bool) -> None:
    """Delete the final snapshot NAME of a deleted volume of KEY.

    `reconciler snapshots --deleted` lists them. Nothing else deletes them.
    """
    from reconciler.clock import SystemClock
    from reconciler.operations.commands import open_existing
    from reconciler.operations.final_snapshots import FinalSnapshot

    settings, clock = load_settings_as_owner(settings_file), SystemClock()
    with open_existing(settings, clock) as records:
        snapshot = FinalSnapshot(settings, key, name, location)
        confirm_loss(f"{snapshot} is deleted, and with it the last copy of the data on this host", yes=yes)
        click.echo(snapshot.delete(records, get_operator_name()))


@command.command(
    "import",
    cls=TargetCommand,
    short_help="Bring an exported snapshot back to this host.",
    epilog="Example: reconciler volume import volumeset/shop/data nightly --volume 0",
)
@key_argument()
@click.argument("name")
@click.option("--volume", "index", metavar="INDEX", type=click.IntRange(min=0), default=0, help="Of which volume; 0.")
@click.option("--location", metavar="NAME", default="", help="Where, if several have the engine host.")
@settings_option
def import_(settings_file: Path, key: Key, name: str, index: int, location: str) -> None:
    """Bring the snapshot NAME of a volume of KEY back from the repository of the setting `snapshots.export`.

    It becomes a snapshot of the volume, which is unchanged: restore it with `reconciler command KEY restoreVolume`.
    """
    import asyncio

    settings = load_settings_as_owner(settings_file)
    if settings.snapshots.export.restic is None:
        raise UsageError("the settings have no `snapshots.export.restic` to import from")
    reader = _find_reader(settings, key, location)
    asyncio.run(reader.import_snapshot(key, index, name))
    location_name = reader.location
    restore = f"reconciler command {key} restoreVolume location={location_name} volumeIndex={index} snapshotName={name}"
    click.echo(f"imported; restore it: {restore}")


@command.command(
    cls=TargetCommand,
    short_help="Make a snapshot one of another volume set.",
    epilog="Example: reconciler volume clone volumeset/shop/data nightly volumeset/preview/data",
)
@key_argument()
@click.argument("name")
@key_argument("target")
@click.option("--volume", "index", metavar="INDEX", type=click.IntRange(min=0), default=0, help="Of which volume; 0.")
@click.option("--location", metavar="NAME", default="", help="Where, if several have the engine host.")
@settings_option
def clone(settings_file: Path, key: Key, name: str, target: Key, index: int, location: str) -> None:
    """Make the snapshot NAME of a volume of KEY a snapshot of the volume with the same index of TARGET.

    TARGET is another volume set, such as that of a preview. Its volume is unchanged: restore the snapshot with
    `reconciler command TARGET restoreVolume`. The volumes of KEY stay in use meanwhile.
    """
    from reconciler.queries.existence import check_present

    settings = load_settings_as_owner(settings_file)
    reader = _find_reader(settings, key, location)
    location_name = reader.location
    _find_reader(settings, target, location_name)
    if key == target:
        raise UsageError("name another volume set to clone to: a volume can restore its own snapshots")
    records = read_records(settings)
    for resource in (key, target):
        check_present(records, resource)
    reader.clone_snapshot(key, name, target, index)
    restore = (
        f"reconciler command {target} restoreVolume location={location_name} volumeIndex={index} snapshotName={name}"
    )
    click.echo(f"cloned; restore it: {restore}")


def _find_reader(settings: Settings, key: Key, location: str) -> SupportsSnapshotMoves:
    """The reader of the location to import to.

    Raises UsageError if there is none, or several and ``location`` names none.
    """
    from reconciler.engines.plugin import make_readers
    from reconciler.engines.reading import SupportsSnapshotMoves
    from reconciler.model.key import Kind

    if key.kind is not Kind.VOLUMESET:
        raise UsageError(f"{key} is no volume set; only volume sets have snapshots")
    moveses = {
        make_reader.location: make_reader
        for make_reader in make_readers(settings)
        if isinstance(make_reader, SupportsSnapshotMoves)
    }
    if location not in ("", *moveses) or not moveses:
        raise UsageError(f"locations that can do this: {', '.join(moveses) or 'none'}")
    if not location and len(moveses) > 1:
        raise UsageError(f"name one of {', '.join(moveses)} with --location")
    return moveses[location or next(iter(moveses))]

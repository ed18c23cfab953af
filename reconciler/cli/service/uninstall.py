"""Removes the service, part by part; settings, records and volumes stay until they are named."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from reconciler.cli.service.machine import DROP_IN, SETTINGS, STATE, SYSUSERS, UNIT, UNITS, USER, Machine
from reconciler.errors import RefusedError

_REPLICAS = "reconciler-replicas.service"
_PAST = {"stop": "stopped", "disable": "disabled", "remove": "removed", "delete": "deleted", "unmount": "unmounted"}


class Removal(NamedTuple):
    """One thing that is removed: with ``verb``, what it is, and what removes it."""

    verb: str
    what: str
    remove: Callable[[], object]


def uninstall_service(machine: Machine, *, purge: bool, volumes: bool, dry_run: bool) -> None:
    """Remove the service from ``machine``, and print what is removed and what stays.

    With ``purge``, also settings, records, logs and the user. Volumes are deleted with ``volumes`` only; while there
    are some, the state directory and the user who owns them stay. Raises RefusedError and UsageError.
    """
    machine.check_rights()
    has_volumes = bool(list_volumes(machine.root / STATE))
    is_deleted = purge and (volumes or not has_volumes)
    removed = 0
    for removal in _list_removals(machine, purge=purge, is_state_deleted=is_deleted):
        removed += 1
        if dry_run:
            click.echo(f"would {removal.verb} {removal.what}")
            continue
        try:
            removal.remove()
        except OSError as error:
            raise RefusedError(f"{removal.what} cannot be removed: {error.strerror or error}") from None
        click.echo(f"{_PAST[removal.verb]} {removal.what}")
    if not removed:
        click.echo("nothing of the service is here: nothing to do")
    for line in _describe_remains(machine, is_state_deleted=is_deleted and not dry_run, dry_run=dry_run):
        click.echo(line)


def list_volumes(state: Path) -> list[Path]:
    """The sets of volumes below the state directory ``state``, with those of which the final snapshots are left."""
    return sorted(path for name in ("volumes", "deleted-volumes") for path in state.glob(f"host/*/{name}/*/*"))


def _list_removals(machine: Machine, *, purge: bool, is_state_deleted: bool) -> Iterator[Removal]:
    root, systemctl = machine.root, machine.call_systemctl
    if machine.is_active:
        yield Removal("stop", UNIT, partial(systemctl, "stop", UNIT))
    if machine.has_systemd and (root / UNITS / _REPLICAS).exists():
        yield Removal("stop", f"{_REPLICAS}, with all workloads", partial(systemctl, "stop", _REPLICAS))
    if machine.is_enabled:
        yield Removal("disable", UNIT, partial(systemctl, "disable", "--quiet", UNIT))
    units = sorted([*(root / UNITS).glob("reconciler*.service"), *(root / UNITS).glob("reconciler*.path")])
    files = [*units, root / DROP_IN, *([] if machine.is_packaged else [root / SYSUSERS])]
    for path in files:
        if path.is_file():
            yield Removal("remove", str(path), path.unlink)
    if not (folder := (root / DROP_IN).parent).is_dir():
        pass
    elif not [path for path in folder.iterdir() if path != root / DROP_IN]:
        yield Removal("remove", str(folder), folder.rmdir)
    if machine.has_systemd and units:
        yield Removal("remove", "the units from systemd", partial(systemctl, "daemon-reload"))
    if purge and (root / SETTINGS.parent).is_dir():
        folder = root / SETTINGS.parent
        yield Removal("delete", f"{folder}, with settings and secrets", partial(shutil.rmtree, folder))
    if is_state_deleted:
        yield from _list_state_removals(machine)


def _list_state_removals(machine: Machine) -> Iterator[Removal]:
    state = machine.root / STATE
    for mount in _list_mounts(state):
        yield Removal("unmount", str(mount), partial(machine.run_program, ["umount", str(mount)]))
    if state.is_dir():
        content = "records, logs and volumes" if list_volumes(state) else "records and logs"
        yield Removal("delete", f"{state}, with {content}", partial(shutil.rmtree, state))
    if machine.find_account() is not None:
        where = [] if machine.is_this else ["--prefix", str(machine.root)]
        yield Removal("remove", f"the user {USER}", partial(machine.run_program, ["userdel", *where, USER]))


def _list_mounts(state: Path) -> list[Path]:
    """What is mounted below ``state``, the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    mounts = [Path(line.split(" ")[4]) for line in lines]
    return sorted((mount for mount in mounts if mount.is_relative_to(state)), reverse=True)


def _describe_remains(machine: Machine, *, is_state_deleted: bool, dry_run: bool) -> Iterator[str]:
    """What stays, and how to remove it."""
    root = machine.root
    verb = "would stay" if dry_run else "stays"
    if machine.is_packaged:
        yield f"The units and the program {verb}: they belong to a package; remove that with apt-get remove"
    if (root / SETTINGS).exists():
        yield f"{root / SETTINGS} {verb}; to delete it too: reconciler uninstall --purge"
    state = root / STATE
    if not state.is_dir() or is_state_deleted:
        return
    count = len(list_volumes(state))
    if count:
        sets = f"{count} set{'s' if count > 1 else ''} of volumes"
        yield f"{state} {verb}, with {sets}, and so does the user {USER}; to delete them too: --purge --volumes"
    else:
        yield f"{state} {verb}, with records and logs, and so does the user {USER}; to delete them: --purge"

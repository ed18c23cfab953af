"""Installs the service: each part is made where it is missing, so that doing it again changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from reconciler.cli.service.machine import (
    DROP_IN,
    PROGRAM,
    SETTINGS,
    STATE,
    SYSUSERS,
    UNIT,
    UNITS,
    USER,
    Account,
    Machine,
)
from reconciler.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from reconciler.settings import Settings

_PAST = {"make": "made", "write": "wrote", "enable": "enabled", "start": "started"}
_HIDDEN = ("/home", "/root", "/run/user")
"""What the unit hides from the service (ProtectHome)."""
_REPOSITORIES = Path("/srv/git")
"""Where the unit lets the service write by itself."""
_HEAD = "# Written by `reconciler install`; `systemctl edit reconciler` makes a file of your own beside it.\n"


class Part(NamedTuple):
    """One thing that is made: with ``verb``, what it is, how to undo it, whether it is there, and what makes it."""

    verb: str
    what: str
    undo: str
    exists: Callable[[], bool]
    make: Callable[[], None]


def install_service(machine: Machine, file: Path | None, *, force: bool, dry_run: bool) -> None:
    """Make each missing part of the service on ``machine``, with the settings in ``file``, and print what is made.

    Raises UsageError and RefusedError, before anything is made, where the service could not start.
    """
    machine.check_rights()
    settings = _read_new_settings(machine, file, force=force)
    _check_program(machine)
    _check_sources(settings)
    was_active = machine.is_active
    missing: list[Part] = []
    for part in _list_parts(machine, file, settings):
        if not part.exists():
            missing.append(part)
            _make_part(part, dry_run=dry_run)
    if not missing:
        click.echo("all of it is installed already: nothing to do")
        return
    if was_active and not dry_run and any(str(UNITS) in part.what for part in missing):
        machine.call_systemctl("daemon-reload")
        click.echo("note: the service that runs is of the former unit: systemctl restart reconciler", err=True)
    for note in _list_notes(machine, settings):
        click.echo(note, err=True)
    if not dry_run:
        click.echo("To undo all of it: reconciler uninstall")


def _make_part(part: Part, *, dry_run: bool) -> None:
    if dry_run:
        click.echo(f"would {part.verb} {part.what}")
        return
    part.make()
    click.echo(f"{_PAST[part.verb]} {part.what}\n    undo: {part.undo}")


def _read_new_settings(machine: Machine, file: Path | None, *, force: bool) -> Settings:
    """The settings of the service. Raises UsageError and RefusedError for those that it cannot run with."""
    from reconciler.settings import load_settings, settings_digest

    target = machine.root / SETTINGS
    if file is None:
        if not target.exists():
            raise UsageError(
                f"there are no settings at {target}: reconciler settings init --out FILE, then install --settings FILE"
            )
        return load_settings(target)
    settings = load_settings(file)
    if target.exists() and target.read_bytes() != file.read_bytes() and not force:
        raise RefusedError(f"{target} has other settings than {file}: edit it there, or replace it with --force")
    if settings_digest(_load_copy(file)) != settings_digest(settings):
        raise UsageError(f"{file} has a relative path, which would begin at /etc/reconciler there: write it absolute")
    if settings.state != Path("/") / STATE:
        raise UsageError(f"{file}: the unit lets the service write to /{STATE} only: write `state: /{STATE}`")
    return settings


def _load_copy(file: Path) -> Settings:
    """The settings in a copy of ``file`` in another directory."""
    from reconciler.settings import load_settings

    with tempfile.TemporaryDirectory(prefix="reconciler-") as folder:
        return load_settings(Path(shutil.copy(file, folder)))


def _check_program(machine: Machine) -> None:
    program = machine.find_program()
    parts = [program]
    if machine.is_this or program != PROGRAM:
        parts += [os.path.realpath(program), os.path.realpath(sys.executable)]
    for part in parts:
        if part.startswith(tuple(f"{folder}/" for folder in _HIDDEN)):
            raise RefusedError(
                f"{part} is in a home, where the service cannot read it: install the program at /opt/reconciler, with "
                "a Python of the system, and call /opt/reconciler/bin/reconciler install (docs/install.md)"
            )


def _check_sources(settings: Settings) -> None:
    for source in settings.sources:
        if source.local and source.url.startswith(tuple(f"{folder}/" for folder in _HIDDEN)):
            copy = _REPOSITORIES / f"{Path(source.url).name}.git"
            raise RefusedError(
                f"source {source.name}: {source.url} is in a home, which the service cannot read. Name the URL of a "
                f"remote in the settings, or a copy to push to: git clone --bare {source.url} {copy}"
            )


def _list_parts(machine: Machine, file: Path | None, settings: Settings) -> Iterator[Part]:
    from reconciler.documents.schema.loader import find_shipped_path

    root, shipped = machine.root, find_shipped_path("systemd")
    if not machine.is_packaged:
        yield _make_file_part(root / SYSUSERS, (shipped / "reconciler.sysusers.conf").read_bytes())
    account = partial(_get_account, machine)
    yield Part(
        "make",
        f"the user {USER}, and its group",
        f"userdel {USER}",
        lambda: machine.find_account() is not None,
        partial(machine.run_program, ["systemd-sysusers", *([] if machine.is_this else [f"--root={root}"])]),
    )
    yield _make_directory_part(root / SETTINGS.parent, 0o755, lambda: Account(0, 0))
    yield _make_directory_part(root / SETTINGS.parent / "secrets", 0o750, lambda: Account(0, account().gid))
    yield _make_directory_part(root / STATE, 0o700, account)
    if file is not None:
        yield _make_file_part(root / SETTINGS, file.read_bytes())
    if not machine.is_packaged:
        for path in sorted([*shipped.glob("*.service"), *shipped.glob("*.path")]):
            yield _make_file_part(root / UNITS / path.name, path.read_bytes())
    if drop_in := _build_drop_in(machine, settings):
        yield _make_file_part(root / DROP_IN, drop_in.encode())
    yield Part(
        "enable",
        f"{UNIT}, which starts with the machine",
        "systemctl disable reconciler",
        lambda: machine.is_enabled,
        partial(machine.call_systemctl, "enable", "--quiet", UNIT),
    )
    if machine.has_systemd:
        yield Part("start", UNIT, "systemctl stop reconciler", lambda: machine.is_active, partial(_start_unit, machine))


def _start_unit(machine: Machine) -> None:
    machine.call_systemctl("daemon-reload")
    machine.call_systemctl("start", UNIT)


def _get_account(machine: Machine) -> Account:
    account = machine.find_account()
    if account is None:
        raise RefusedError(f"systemd-sysusers has made no user {USER}: {machine.show_path(SYSUSERS)} describes it")
    return account


def _make_file_part(path: Path, content: bytes) -> Part:
    """The part that is the file at ``path``, which everybody may read and root may write."""

    def write() -> None:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(content)
        part.chmod(0o644)
        part.replace(path)

    return Part(
        "write",
        str(path),
        f"rm {path}",
        lambda: path.is_file() and path.read_bytes() == content,
        partial(_explain_refusal, path, write),
    )


def _make_directory_part(path: Path, mode: int, find_owner: Callable[[], Account]) -> Part:
    """The part that is the directory at ``path``; the owner may exist only once it is made."""

    def is_right() -> bool:
        try:
            status = path.stat()
            return stat.S_IMODE(status.st_mode) == mode and (status.st_uid, status.st_gid) == find_owner()
        except (OSError, RefusedError):
            return False

    def make() -> None:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        os.chown(path, *find_owner())
        path.chmod(mode)

    what = f"the directory {path}, mode {mode:04o}"
    return Part("make", what, f"rm -r {path}", is_right, partial(_explain_refusal, path, make))


def _explain_refusal(path: Path, make: Callable[[], None]) -> None:
    try:
        make()
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


def _build_drop_in(machine: Machine, settings: Settings) -> str:
    """What differs from the shipped unit: the place of the program, and repositories outside of /srv/git."""
    lines: list[str] = []
    program = machine.find_program()
    if program != PROGRAM:
        lines += ["ExecStart=", f"ExecStart={program} run --settings /{SETTINGS}"]
    outside = [source.url for source in settings.sources if source.local and not _is_open(source.url)]
    lines += [f"ReadWritePaths=-{url}" for url in outside]
    return f"{_HEAD}[Service]\n" + "".join(f"{line}\n" for line in lines) if lines else ""


def _is_open(url: str) -> bool:
    """Whether the shipped unit lets the service write to the repository at ``url``."""
    return Path(url).is_relative_to(_REPOSITORIES)


def _list_notes(machine: Machine, settings: Settings) -> Iterator[str]:
    """What is left to do by a person."""
    account = machine.find_account()
    for source in settings.sources:
        path = machine.root / source.url.lstrip("/")
        if source.local and not source.read_only and account is not None and path.exists():
            if path.stat().st_uid != account.uid:
                yield (
                    f"note: the service writes the status to {source.url}, which belongs to another user: chown -R "
                    f"{USER}:{USER} {source.url}"
                )
        elif source.local and not path.exists():
            yield f"note: source {source.name}: there is no repository at {source.url} yet"
    if machine.is_this and not machine.has_systemd:
        yield "note: systemd does not run here, so nothing is started; it will be when the machine boots with systemd"

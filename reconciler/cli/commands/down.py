"""`reconciler down`: end what `reconciler up` runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.local_settings import follow_directory
from reconciler.cli.options import load_settings_as_owner, refused_settings_option
from reconciler.cli.output.printing import note_at_interrupt
from reconciler.errors import NotFoundError, RefusedError
from reconciler.local_state import SETTINGS_FILE, find_origin, find_settings_of, find_state

if TYPE_CHECKING:
    from reconciler.settings import Settings

_PATIENCE = 30.0
"""Seconds that the daemon has to end."""
_POLL_SECONDS = 0.05


@click.command(epilog="Example: reconciler down --volumes")
@click.argument("source", metavar="[DIR|URL]", default=".")
@click.option("--volumes", is_flag=True, help="Also delete the volumes, the records and the logs.")
@refused_settings_option("a daemon with those of a file ends by Ctrl-C, or: systemctl stop reconciler")
def command(source: str, volumes: bool) -> None:
    """End the daemon that `reconciler up` started for DIR or URL, and every replica of it.

    Volumes, records and logs stay, so that `up` goes on where it was, unless --volumes deletes them. Nothing in the
    repository changes.
    """
    state = _find_named_state(source)
    settings = load_settings_as_owner(state / SETTINGS_FILE)
    followed = find_origin(state) or settings.sources[0].url
    with note_at_interrupt("not everything has ended; to go on: reconciler down"):
        ended = _end_all(settings)
    click.echo(f"{'the daemon and its' if ended else 'no daemon ran; the'} replicas of {followed} have ended")
    if not volumes:
        click.echo(f"volumes, records and logs stay in {state}; to delete them: reconciler down --volumes")
        return
    try:
        shutil.rmtree(state)
    except OSError as error:
        raise RefusedError(f"{state} cannot be deleted: {error.strerror or error}") from None
    click.echo(f"{state} is deleted, with its volumes")


def _end_all(settings: Settings) -> bool:
    """End the daemon and every replica; returns whether a daemon ran. Raises RefusedError where one does not end."""
    from reconciler import logs
    from reconciler.cli.foreground import end_replicas
    from reconciler.daemon.lock import StateLock

    ended = _end_daemon(settings.state)
    logs.configure_logging(settings.log.format, "warning")  # it may start Podman's service, to end containers
    lock = StateLock(settings.state)
    lock.acquire("reconciler down")
    try:
        asyncio.run(end_replicas(settings))
    finally:
        lock.release()
    return ended


def _find_named_state(source: str) -> Path:
    """The state directory of what `up` runs for ``source``. Raises NotFoundError."""
    directory = Path(source)
    if directory.is_dir() and (found := find_settings_of(directory.resolve())) is not None:
        return found.parent
    url = follow_directory(directory.resolve()).url if directory.is_dir() else source
    state = find_state(url)
    if not (state / SETTINGS_FILE).exists():
        raise NotFoundError(f"nothing runs for {url}: `reconciler up` has written no settings at {state}")
    return state


def _end_daemon(state: Path) -> bool:
    """End the daemon, if one runs; returns whether. Raises RefusedError where it does not end."""
    from reconciler.daemon.lock import find_lock_holder

    holder = find_lock_holder(state)
    if holder is None:
        return False
    os.kill(holder.pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    while find_lock_holder(state) is not None:
        if time.monotonic() >= deadline:
            raise RefusedError(f"the daemon ({holder}) does not end; its log has the reason")
        time.sleep(_POLL_SECONDS)
    return True
